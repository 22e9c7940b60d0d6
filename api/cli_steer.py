"""The commands that change and steer what is there: ``jobs edit``, ``pause``, ``resume``, ``trigger``, and ``runs cancel``."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer
from pydantic import JsonValue
from typer.core import TyperGroup

from api.cli_input import (
    BadInput,
    JobId,
    given,
    list_bodies,
    read_document,
    read_labels,
    read_schedule,
    read_value,
)

if TYPE_CHECKING:
    from horarium.client import Answer, Job, JobPatch

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="Repeated with it, nothing is done twice.")]
CatchUp = Annotated[str | None, typer.Option(help="none or apply: what becomes of the fires that fell into the pause.")]

Revision = Annotated[int | None, typer.Option(help="Only if the job still has this revision.")]


class RunsGroup(TyperGroup):
    """``horarium runs JOB`` is ``horarium runs list JOB``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Take what is no command for the arguments of ``list``."""
        is_command = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if is_command else ["list", *args])


def edit_job(
    job: JobId,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE|-", help="JSON or YAML: the fields that change.")
    ] = None,
    schedule: Annotated[str | None, typer.Option(help='Such as "0 9 * * 1", "@every 15m" or a JSON object.')] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", "-z", help="IANA name.")] = None,
    payload: Annotated[str | None, typer.Option(help="JSON; of an object, the members that change.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=JSON", help="Any field of a job; null for its default. May be repeated."),
    ] = None,
    revision: Revision = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Change the fields of a job that are given. Options go before what a file says."""
    from api.cli_client import open_client

    [patch, *others] = [{}] if file is None else list_bodies(read_document(file), name=file)
    if others:
        raise BadInput("a file for jobs edit has one object: the fields that change")
    patch |= _read_settings(settings or [])
    patch |= given(
        {
            "schedule": None if schedule is None else read_schedule(schedule),
            "timezone": timezone,
            "payload": None if payload is None else read_value(payload, option="--payload"),
            "labels": read_labels(label) if label else None,
        }
    )
    if not patch:
        raise BadInput("nothing to change: give --schedule, --set FIELD=JSON, --file or the like")
    with open_client() as client:
        changes = cast("JobPatch", patch)
        found = client.jobs.update(job, changes, if_match=revision, idempotency_key=idempotency_key)
    _show(found, f"changed {found.job_id} (revision {found.revision}); next run: {_next_run(found)}", as_json=as_json)


def pause_job(
    job: JobId,
    reason: Annotated[str | None, typer.Option(help="For people.")] = None,
    by: Annotated[str | None, typer.Option(help="Who pauses it.")] = None,
    until: Annotated[str | None, typer.Option(help="Then it resumes by itself.")] = None,
    catch_up: CatchUp = None,
    revision: Revision = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Let a job fire no more until it is resumed. Runs that have begun go on."""
    from api.cli_client import open_client

    with open_client() as client:
        found = client.jobs.pause(
            job,
            reason=reason,
            by=by,
            until=until,
            catch_up=catch_up,
            if_match=revision,
            idempotency_key=idempotency_key,
        )
    _show(found, f"paused {found.job_id} ({found.name})" + (f" until {until}" if until else ""), as_json=as_json)


def resume_job(
    job: JobId,
    catch_up: CatchUp = None,
    revision: Revision = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Let a paused job fire again."""
    from api.cli_client import open_client

    with open_client() as client:
        found = client.jobs.resume(job, catch_up=catch_up, if_match=revision, idempotency_key=idempotency_key)
    _show(found, f"{found.job_id} ({found.name}) is {found.state}; next run: {_next_run(found)}", as_json=as_json)


def trigger_job(
    job: JobId,
    payload: Annotated[str | None, typer.Option(help="JSON, instead of the job's, for this run.")] = None,
    overlap: Annotated[str | None, typer.Option(help="Instead of the job's: skip, buffer_one, allow, ...")] = None,
    skip_next: Annotated[bool, typer.Option("--skip-next", help="The run takes the place of the next fire.")] = False,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Run a job now, whatever its schedule says."""
    from api.cli_client import open_client
    from horarium.client import UNSET

    given_payload = UNSET if payload is None else read_value(payload, option="--payload")
    with open_client() as client:
        told = client.jobs.trigger(
            job,
            payload=given_payload,
            overlap=overlap,
            skip_next=True if skip_next else None,
            idempotency_key=idempotency_key,
        )
    consumed = f", in the place of the fire of {told.document['consumed']}" if told.consumed else ""
    why = "" if told.outcome == "started" else f": {told.run.reason}"
    _show(told, f"{told.outcome}: {told.run_id}{consumed}{why}", as_json=as_json)
    for warning in () if as_json else told.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def cancel_runs(
    runs: Annotated[list[str], typer.Argument(help="Ids of runs.")],
    reason: Annotated[str | None, typer.Option(help="Told in the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask runs to end, wherever they stand. Those that are over stay as they are."""
    from api.cli_client import open_client

    with open_client() as client:
        for run_id in runs:
            run = client.runs.cancel(run_id, reason=reason)
            _show(run, f"{run_id} is {run.status}" if run.is_over else f"{run_id} is asked to end", as_json=as_json)


def _next_run(job: "Job") -> JsonValue:
    return job.document["next_run_at"] or "none"


def _read_settings(settings: Sequence[str]) -> dict[str, JsonValue]:
    """Read ``FIELD=JSON``; what is no JSON is text. Raises ``BadInput``."""
    pairs = [setting.partition("=") for setting in settings]
    for field, separator, _ in pairs:
        if not separator or not field:
            raise BadInput("--set: give FIELD=JSON")
    return {field: _read_setting(value) for field, _, value in pairs}


def _read_setting(text: str) -> JsonValue:
    try:
        return read_value(text, option="--set")
    except BadInput:
        if text[:1] in ("{", "[", '"'):
            raise
        return text


def _show(answer: "Answer", line: str, *, as_json: bool) -> None:
    from api.cli_client import print_json
    from api.cli_table import print_line

    print_json(answer) if as_json else print_line(line)
