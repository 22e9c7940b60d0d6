"""``horarium apply``, ``export`` and ``schema``: jobs as files in git."""

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final, TypeAlias, assert_never, cast

import yaml
from pydantic import JsonValue

from api.apply_plan import OWNER_LABEL, Action, ApplyPlan, Present, Step, compare, make_plan, owner_errors, with_owner
from api.calendar_body import named_calendars
from api.cli_client import command_failure, open_client
from api.cli_input import BadInput, CommandFailed
from api.job_body import JobBody, JobRequest
from api.job_file import BadFiles, FiledJob, ReadFiles, find_example_file, read_job_files, read_requests
from horarium.client import Client, HorariumError, PreconditionFailed
from horarium.client import JobBody as JobToSend
from workflows.calendar_day import join_spans
from workflows.schedule import CalendarDays
from workflows.wording import WEEKDAYS

JsonObject: TypeAlias = dict[str, JsonValue]

Requests: TypeAlias = Sequence[tuple[FiledJob, JobRequest]]

AT_ONCE: Final = 8
"""Jobs that are written at the same time."""

_DONE: Final = {Action.CREATE: "created", Action.CHANGE: "changed", Action.PRUNE: "removed"}

_OVERTAKEN: Final = {
    Action.CREATE: "created by somebody else since it was looked for",
    Action.CHANGE: "changed since it was compared",
    Action.PRUNE: "changed since it was compared",
}

_AGAIN: Final = "apply again; with --dry-run it says what would change"

_SIGNS: Final = {Action.CREATE: "+", Action.CHANGE: "~", Action.PRUNE: "-"}


def check_examples() -> None:
    """Read the file of example jobs. Raises ``BadInput`` where it is not there, or is not such a file."""
    found = read_job_files([str(find_example_file())])
    if found.errors:
        raise BadFiles(found.errors)


def apply_examples(url: str) -> None:
    """Make the example jobs what their file says, as ``horarium apply -f`` does.

    Raises:
        BadInput: something is wrong in the file; nothing was done.
        CommandFailed: not all of it could be done.
    """
    file = find_example_file()
    if apply_files([str(file)], owner=None, prune=False, take_over=False, dry_run=False, url=url):
        raise CommandFailed(f"not all jobs of {file} could be applied")


def apply_files(
    names: Sequence[str], *, owner: str | None, prune: bool, take_over: bool, dry_run: bool, url: str | None = None
) -> int:
    """Make jobs what files say, and answer the exit code. ``url`` is of an API, by default the environment's.

    Raises ``BadInput`` with all that is wrong in all files, before anything is done.
    """
    if prune and owner is None:
        raise BadInput("--prune removes what an owner has applied and no longer describes: say --owner too")
    found = read_job_files(names)
    if prune and not found.jobs:
        raise BadInput("no job in the files: with --prune, all of the owner's jobs would be removed")
    errors = [*found.errors, *owner_errors(found.jobs)]
    labelled = ReadFiles(jobs=[with_owner(job, owner) for job in found.jobs], errors=errors)
    with open_client(url) as client:
        requests = read_requests(labelled, calendars=_calendars_of(labelled, client))
        present = _read_present(client)
        plan = make_plan(requests, present, owner=owner, prune=prune, take_over=take_over, now=datetime.now(UTC))
        failed = 0 if dry_run else _carry_out(plan, requests, client)
    if dry_run:
        _show_plan(plan)
    _print_summary(plan, dry_run=dry_run, failed=failed)
    return 1 if failed else 0


def export_jobs(*, labels: Sequence[str]) -> None:
    """Print jobs as a file that ``apply`` takes."""
    with open_client() as client:
        jobs = [_without_owner(job.body) for job in client.jobs.export(labels=labels)]
    print(yaml.safe_dump({"jobs": jobs}, sort_keys=False, allow_unicode=True, width=120), end="")


def job_file_schema() -> JsonObject:
    """Describe a file of jobs for editors, as JSON Schema."""
    schema = JobBody.model_json_schema(ref_template="#/$defs/{model}")
    definitions = schema.pop("$defs")
    schema["required"] = sorted({*schema["required"], "job_id"})
    many: JsonObject = {"type": "array", "items": {"$ref": "#/$defs/Job"}}
    listed: JsonObject = {
        "type": "object",
        "required": ["jobs"],
        "additionalProperties": False,
        "properties": {"jobs": many},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobs of Horarium",
        "description": "A job, a list of jobs, or a list of them under `jobs`, as `horarium apply` takes them.",
        "anyOf": [listed, {"$ref": "#/$defs/Job"}, many],
        "$defs": {**definitions, "Job": schema},
    }


def print_schema() -> None:
    """Print the schema of a file of jobs."""
    print(json.dumps(job_file_schema(), indent=2, ensure_ascii=False))


def _calendars_of(found: ReadFiles, client: Client) -> dict[str, CalendarDays]:
    """Ask for the calendars that jobs name, those of them that there are."""
    named = {name for job in found.jobs for name in named_calendars(job.body)}
    known = {each.name for each in client.calendars.list()} if named else set()
    return {name: _read_calendar(client, name) for name in sorted(named & known)}


def _read_calendar(client: Client, name: str) -> CalendarDays:
    found = client.calendars.get(name)
    weekdays = [day.lower() for day in WEEKDAYS]
    return CalendarDays(
        name=name,
        spans=join_spans((day.from_, day.to) for day in found.days),
        weekend=tuple(weekdays.index(day) for day in found.weekend),
    )


def _read_present(client: Client) -> dict[str, Present]:
    jobs = client.jobs.export()
    return {job.job_id: Present(job_id=job.job_id, revision=job.revision, body=job.body) for job in jobs}


def _carry_out(plan: ApplyPlan, requests: Requests, client: Client) -> int:
    """Write and remove jobs, several at a time; say how many it failed for. One that fails keeps no other from being done."""
    overtaken: dict[str, str] = {}
    failed = 0
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for step, error in zip(plan.steps, pool.map(lambda step: _try(step, client), plan.steps), strict=True):
            if error is None:
                print(f"{_DONE[step.action]} {step.job_id}")
            elif isinstance(error, PreconditionFailed):
                overtaken[step.job_id] = str(error)
            else:
                failed += 1
                _tell_failure(step, str(command_failure(error)))
    alike = _find_alike(set(overtaken), requests, client)
    for step in plan.steps:
        if step.job_id in alike:
            print(f"{_DONE[step.action]} {step.job_id} (by somebody else, alike)")
        elif step.job_id in overtaken:
            _tell_failure(step, f"{_OVERTAKEN[step.action]} ({overtaken[step.job_id]}): {_AGAIN}")
    return failed + len(overtaken) - len(alike)


def _try(step: Step, client: Client) -> HorariumError | None:
    try:
        match step.action:
            case Action.CREATE:
                client.jobs.put(step.job_id, cast(JobToSend, dict(step.body)), if_none_match="*")
            case Action.CHANGE:
                client.jobs.put(step.job_id, cast(JobToSend, dict(step.body)), if_match=step.revision)
            case Action.PRUNE:
                client.jobs.delete(step.job_id, if_match=step.revision)
            case _:
                assert_never(step.action)
    except HorariumError as error:
        return error
    return None


def _find_alike(overtaken: set[str], requests: Requests, client: Client) -> set[str]:
    """Find the jobs that somebody else has written, and made what their files say; none where the API does not answer."""
    try:
        present = _read_present(client) if overtaken else {}
    except HorariumError:
        return set()
    return {
        request.job_id
        for job, request in requests
        if request.job_id in overtaken and compare(job, request, present.get(request.job_id)) is None
    }


def _tell_failure(step: Step, reason: str) -> None:
    print(f"horarium: {step.place or 'prune'}: {step.job_id}: {reason}", file=sys.stderr)


def _show_plan(plan: ApplyPlan) -> None:
    for step in plan.steps:
        place = f" ({step.place})" if step.place else ""
        print(f"{_SIGNS[step.action]} {step.job_id}{place}")
        for difference in step.differences:
            print(f"    {difference}")


def _print_summary(plan: ApplyPlan, *, dry_run: bool, failed: int) -> None:
    counts = {action: sum(step.action is action for step in plan.steps) for action in Action}
    parts = [
        f"{counts[action]} {word}" for action, word in _DONE.items() if action is not Action.PRUNE or counts[action]
    ]
    parts += [f"{plan.unchanged} unchanged", *([f"{failed} failed of these"] if failed else [])]
    print(f"{'dry run: ' if dry_run else ''}{', '.join(parts)}")


def _without_owner(body: Mapping[str, JsonValue]) -> JsonObject:
    """Leave out the label that ``apply`` gives."""
    given = body.get("labels")
    labels = {name: value for name, value in given.items() if name != OWNER_LABEL} if isinstance(given, dict) else {}
    kept = {name: value for name, value in body.items() if name != "labels" and (name, value) != ("payload", None)}
    return {**kept, **({"labels": labels} if labels else {})}
