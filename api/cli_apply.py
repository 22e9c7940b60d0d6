"""``horarium apply``, ``export`` and ``schema``: jobs as files in git."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

import yaml
from pydantic import JsonValue

from api.apply_plan import OWNER_LABEL, Action, ApplyPlan, Present, Step, make_plan, with_owner
from api.calendar_body import named_calendars
from api.cli_client import ApiClient, CommandFailed, JsonObject
from api.cli_input import BadInput, quote_segment
from api.job_body import JobBody
from api.job_file import ReadFiles, read_job_files, read_requests
from workflows.calendar_day import join_spans
from workflows.schedule import CalendarDays
from workflows.wording import WEEKDAYS

AT_ONCE: Final = 8
"""Jobs that are written at the same time."""

_DONE: Final = {Action.CREATE: "created", Action.CHANGE: "changed", Action.PRUNE: "removed"}

_SIGNS: Final = {Action.CREATE: "+", Action.CHANGE: "~", Action.PRUNE: "-"}


def apply_files(names: Sequence[str], *, owner: str | None, prune: bool, take_over: bool, dry_run: bool) -> int:
    """Make jobs what files say, and answer the exit code.

    Raises ``BadInput`` with all that is wrong in all files, before anything is done.
    """
    if prune and owner is None:
        raise BadInput("--prune removes what an owner has applied and no longer describes: say --owner too")
    found = read_job_files(names)
    if prune and not found.jobs:
        raise BadInput("no job in the files: with --prune, all of the owner's jobs would be removed")
    labelled = ReadFiles(jobs=[with_owner(job, owner) for job in found.jobs], errors=found.errors)
    with ApiClient() as client:
        requests = read_requests(labelled, calendars=_calendars_of(labelled, client))
        present = {job.job_id: job for job in _list_present(client)}
        plan = make_plan(requests, present, owner=owner, prune=prune, take_over=take_over, now=datetime.now(UTC))
        failed = 0 if dry_run else _carry_out(plan, client)
    if dry_run:
        _show_plan(plan)
    _print_summary(plan, dry_run=dry_run, failed=failed)
    return 1 if failed else 0


def export_jobs(*, labels: Sequence[str]) -> None:
    """Print jobs as a file that ``apply`` takes."""
    parameters = [("label", label) for label in labels]
    with ApiClient() as client:
        found = client.list_all("/api/v1/export", parameters=parameters, limit=None)
    jobs = [_without_owner(_mapping(job["body"])) for job in found]
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


def _calendars_of(found: ReadFiles, client: ApiClient) -> dict[str, CalendarDays]:
    """Ask for the calendars that jobs name, those of them that there are."""
    named = {name for job in found.jobs for name in named_calendars(job.body)}
    known = {str(each["name"]) for each in client.list_whole("/api/v1/calendars")} if named else set()
    return {name: _read_calendar(client, name) for name in sorted(named & known)}


def _read_calendar(client: ApiClient, name: str) -> CalendarDays:
    found = client.get(f"/api/v1/calendars/{quote_segment(name)}")
    weekdays = [day.lower() for day in WEEKDAYS]
    days, weekend = found["days"], found["weekend"]
    assert isinstance(days, list)
    assert isinstance(weekend, list)
    spans = [CalendarDays.model_validate({"spans": [(_mapping(day)["from"], _mapping(day)["to"])]}) for day in days]
    return CalendarDays(
        name=name,
        spans=join_spans(span for each in spans for span in each.spans),
        weekend=tuple(weekdays.index(str(day)) for day in weekend),
    )


def _list_present(client: ApiClient) -> Iterator[Present]:
    for job in client.list_all("/api/v1/export", parameters=(), limit=None):
        revision = job["revision"]
        assert isinstance(revision, int)
        yield Present(job_id=str(job["job_id"]), revision=revision, body=_mapping(job["body"]))


def _carry_out(plan: ApplyPlan, client: ApiClient) -> int:
    """Write and remove jobs, several at a time; say how many it failed for. One that fails keeps no other from being done."""
    failed = 0
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for step, problem in zip(plan.steps, pool.map(lambda step: _try(step, client), plan.steps), strict=True):
            if problem is None:
                print(f"{_DONE[step.action]} {step.job_id}")
            else:
                failed += 1
                print(f"horarium: {step.place or 'prune'}: {step.job_id}: {problem}", file=sys.stderr)
    return failed


def _try(step: Step, client: ApiClient) -> str | None:
    path = f"/api/v1/jobs/{quote_segment(step.job_id)}"
    try:
        if step.action is Action.PRUNE:
            client.delete(path, parameters={})
        else:
            client.put(path, dict(step.body), revision=step.revision)
    except CommandFailed as error:
        return str(error)
    return None


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
    labels = {name: value for name, value in _mapping(body.get("labels") or {}).items() if name != OWNER_LABEL}
    kept = {name: value for name, value in body.items() if name != "labels" and (name, value) != ("payload", None)}
    return {**kept, **({"labels": labels} if labels else {})}


def _mapping(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    return value
