"""The commands that change and steer what is there: ``jobs edit``, ``pause``, ``resume``, ``trigger``, and ``runs cancel``."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from pydantic import JsonValue
from typer.core import TyperGroup

from api.cli_input import (
    BadInput,
    given,
    list_bodies,
    quote_segment,
    read_document,
    read_labels,
    read_schedule,
    read_value,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="Repeated with it, nothing is done twice.")]
CatchUp = Annotated[str | None, typer.Option(help="none or apply: what becomes of the fires that fell into the pause.")]


class RunsGroup(TyperGroup):
    """``horarium runs JOB`` is ``horarium runs list JOB``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Take what is no command for the arguments of ``list``."""
        is_command = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if is_command else ["list", *args])


def edit_job(
    job: str,
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
    revision: Annotated[int | None, typer.Option(help="Only if the job still has this revision.")] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Change the fields of a job that are given. Options go before what a file says."""
    from api.cli_client import ApiClient

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
    with ApiClient() as client:
        found = client.patch(_path(job), patch, key=idempotency_key, revision=revision)
    _show(
        found,
        f"changed {found['job_id']} (revision {found['revision']}); next run: {_next_run(found)}",
        as_json=as_json,
    )


def pause_job(
    job: str,
    reason: Annotated[str | None, typer.Option(help="For people.")] = None,
    by: Annotated[str | None, typer.Option(help="Who pauses it.")] = None,
    until: Annotated[str | None, typer.Option(help="Then it resumes by itself.")] = None,
    catch_up: CatchUp = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Let a job fire no more until it is resumed. Runs that have begun go on."""
    body = given({"reason": reason, "by": by, "until": until, "catch_up": catch_up})
    found = _post(f"{_path(job)}/pause", body, key=idempotency_key)
    _show(found, f"paused {found['job_id']} ({found['name']})" + (f" until {until}" if until else ""), as_json=as_json)


def resume_job(job: str, catch_up: CatchUp = None, idempotency_key: Key = None, as_json: AsJson = False) -> None:
    """Let a paused job fire again."""
    found = _post(f"{_path(job)}/resume", given({"catch_up": catch_up}), key=idempotency_key)
    _show(
        found, f"{found['job_id']} ({found['name']}) is {found['state']}; next run: {_next_run(found)}", as_json=as_json
    )


def trigger_job(
    job: str,
    payload: Annotated[str | None, typer.Option(help="JSON, instead of the job's, for this run.")] = None,
    overlap: Annotated[str | None, typer.Option(help="Instead of the job's: skip, buffer_one, allow, ...")] = None,
    skip_next: Annotated[bool, typer.Option("--skip-next", help="The run takes the place of the next fire.")] = False,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Run a job now, whatever its schedule says."""
    body: dict[str, JsonValue] = given({"overlap": overlap, "skip_next": True if skip_next else None})
    if payload is not None:
        body["payload"] = read_value(payload, option="--payload")
    told = _post(f"{_path(job)}/trigger", body, key=idempotency_key)
    consumed = f", in the place of the fire of {told['consumed']}" if told["consumed"] else ""
    run = told["run"]
    why = f": {run['reason']}" if told["outcome"] != "started" and isinstance(run, dict) else ""
    _show(told, f"{told['outcome']}: {told['run_id']}{consumed}{why}", as_json=as_json)


def cancel_runs(
    runs: Annotated[list[str], typer.Argument(help="Ids of runs.")],
    reason: Annotated[str | None, typer.Option(help="Told in the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask runs to end, wherever they stand. Those that are over stay as they are."""
    for run_id in runs:
        run = _post(f"/api/v1/runs/{quote_segment(run_id)}/cancel", given({"reason": reason}), key=None)
        is_over = run["status"] in ("success", "dead", "cancelled")
        _show(run, f"{run_id} is {run['status']}" if is_over else f"{run_id} is asked to end", as_json=as_json)


def _post(path: str, body: dict[str, JsonValue], *, key: str | None) -> dict[str, JsonValue]:
    from api.cli_client import ApiClient

    with ApiClient() as client:
        return client.post(path, body, key=key)


def _path(job: str) -> str:
    return f"/api/v1/jobs/{quote_segment(job)}"


def _next_run(job: Mapping[str, JsonValue]) -> JsonValue:
    return job["next_run_at"] or "none"


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


def _show(answer: Mapping[str, JsonValue], line: str, *, as_json: bool) -> None:
    from api.cli_table import print_line

    print(json.dumps(answer, ensure_ascii=False)) if as_json else print_line(line)
