"""How the command line shows things to people: short tables and lines."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_WIDE: Final = 240
"""Columns where the output is a file or a pipe: nothing is cut that a program may want."""

_COLOURS: Final = {
    "active": "green",
    "success": "green",
    "done": "green",
    "running": "cyan",
    "cancelling": "yellow",
    "stopped": "red",
    "pending": "cyan",
    "retrying": "yellow",
    "parked": "yellow",
    "paused": "yellow",
    "closed": "green",
    "half_open": "yellow",
    "held": "yellow",
    "in_force": "yellow",
    "open": "red",
    "missed": "red",
    "dead": "red",
    "cancelled": "magenta",
    "completed": "dim",
    "deleted": "dim",
}


def print_jobs(jobs: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show jobs, a line each."""
    rows = [
        (
            _text(job["job_id"]),
            _text(job["name"]),
            _coloured("held" if job["state"] == "active" and job.get("holds") else job["state"]),
            _text(show_schedule(job["schedule"])),
            _text(job["timezone"]),
            _text(job["next_run_at"]),
            _coloured(job["last_status"]),
            "" if _is_healthy(job) else "[red]see jobs show[/]",
        )
        for job in jobs
    ]
    _print_table(("JOB", "NAME", "STATE", "SCHEDULE", "ZONE", "NEXT RUN", "LAST", ""), rows, empty="no jobs")


def print_job(job: Mapping[str, JsonValue]) -> None:
    """Show a job: how it stands, then what it is."""
    first = (
        "job_id",
        "name",
        "state",
        "next_run_at",
        "next_target_at",
        "last_status",
        "last_finished_at",
        "last_error",
    )
    for name in (*first, *(name for name in job if name not in first)):
        shown = show_field(name, job.get(name))
        if shown:
            line = f"[bold]{name}[/]: {_coloured(shown) if name == 'state' else _text(shown)}"
            _console().print(line, soft_wrap=True)


def show_field(name: str, value: JsonValue) -> str:
    """Write a field of a job as a person would; empty where it says nothing."""
    match name:
        case "payload":
            return "" if value is None else json.dumps(value, ensure_ascii=False)
        case "health":
            return _show_health(value)
        case _ if name.endswith("_seconds") and value is not None:
            return f"{value} s"
        case _:
            return _show_value(value)


def _show_health(health: JsonValue) -> str:
    if not isinstance(health, dict) or health.get("ok"):
        return "ok"
    return "; ".join(map(str, _list(health.get("reasons"))))


def _show_value(value: JsonValue) -> str:
    """Write words, lists with commas, and objects as ``name value``; what is nested deeper is JSON."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(_show_inner(each) for each in value)
        case dict():
            members = ((name, _show_inner(inner)) for name, inner in value.items())
            return ", ".join(f"{name.replace('_', ' ')} {shown}" for name, shown in members if shown)
        case _:
            return str(value)


def _show_inner(value: JsonValue) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return _show_value(value)


def print_runs(runs: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show runs, a line each."""
    rows = [
        (
            _text(run["scheduled_at"]),
            _coloured(run["status"]),
            f"{run['attempt']}/{run['max_attempts']}",
            _text(run["started_at"]),
            "" if run["duration"] is None else f"{run['duration']} s",
            _text(run["error"] or run["reason"]),
            _text(run["run_id"]),
        )
        for run in runs
    ]
    _print_table(("SCHEDULED", "STATUS", "ATTEMPT", "STARTED", "TOOK", "ERROR", "RUN"), rows, empty="no runs")


def print_ledger(entries: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show what became of nominal times, a line for each, or for neighbours alike."""
    rows = [
        (
            _text(entry["first"]),
            "" if entry["last"] == entry["first"] else _text(entry["last"]),
            _text(entry["count"]),
            _coloured(entry["outcome"]),
            _text(entry["reason"]),
            _text(entry["run_id"]),
            _text(entry["backfilled"] or None),
        )
        for entry in entries
    ]
    columns = ("NOMINAL", "UP TO", "FIRES", "OUTCOME", "REASON", "RUN", "BACKFILLED")
    _print_table(columns, rows, empty="no fires in this time")


def print_upcoming(fires: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show fires to come, a line each."""
    rows = [tuple(_text(fire[name]) for name in ("local", "nominal", "target")) for fire in fires]
    _print_table(("LOCAL", "NOMINAL", "TARGET"), rows, empty="no fires to come")


def print_dead_letters(letters: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show dead letters, a line each."""
    rows = [
        (
            _text(letter["finished_at"]),
            _text(letter["job_id"]),
            _text(letter["scheduled_at"]),
            f"{letter['attempt']}/{letter['max_attempts']}",
            _text(letter["reason"]),
            _text(letter["error"]),
            _text(letter["run_id"]),
        )
        for letter in letters
    ]
    columns = ("DIED", "JOB", "SCHEDULED", "ATTEMPT", "REASON", "ERROR", "RUN")
    _print_table(columns, rows, empty="no dead letters")


def print_backfills(backfills: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show backfills, a line each."""
    rows = [
        (
            _text(each["backfill_id"]),
            _coloured(each["status"]),
            f"{each['done']}/{each['total']}",
            _text(each["from"]),
            _text(each["to"]),
            _text(each["dead"]),
            _text(each["requested_at"]),
            _text(each["trouble"] or each["reason"]),
        )
        for each in backfills
    ]
    columns = ("BACKFILL", "STATUS", "DONE", "FROM", "TO", "DEAD", "ASKED FOR", "REASON")
    _print_table(columns, rows, empty="no backfills")


def print_downstreams(downstreams: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show downstreams, a line each."""
    rows = [
        (
            _text(each["downstream"]),
            _coloured(each["state"] or "unknown"),
            _text(each["open_until"]),
            _text(each["parked_runs"]),
            _text(each["jobs"]),
            ", ".join(f"{one['retries']}/{one['retries_allowed']}" for one in _objects(each["schedulers"])),
        )
        for each in downstreams
    ]
    columns = ("DOWNSTREAM", "BREAKER", "OPEN UNTIL", "PARKED", "JOBS", "RETRIES")
    _print_table(columns, rows, empty="no job calls a downstream")


def print_downstream(downstream: Mapping[str, JsonValue]) -> None:
    """Show one downstream: its breaker, then the schedulers."""
    for name, value in downstream.items():
        if name != "schedulers" and value not in (None, False):
            _console().print(f"[bold]{name}[/]: {_coloured(value) if name == 'state' else _text(value)}")
    rows = [
        (
            _text(one["worker"]),
            _text(one["consecutive_failures"]),
            _text(one["first_attempts"]),
            f"{one['retries']}/{one['retries_allowed']}",
            _text(one["parked_runs"]),
            _text(one["seen_at"]),
        )
        for one in _objects(downstream["schedulers"])
    ]
    columns = ("SCHEDULER", "FAILURES", "FIRST ATTEMPTS", "RETRIES", "PARKED", "SEEN")
    _print_table(columns, rows, empty="no scheduler has had to do with it lately")


def print_keys(keys: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show API keys, a line each."""
    names = ("key_id", "tenant", "name", "scope", "created_at", "expires_at", "last_used_at", "revoked_at")
    rows = [[_text(key[name]) for name in names] for key in keys]
    columns = ("KEY", "TENANT", "NAME", "SCOPE", "CREATED", "EXPIRES", "LAST USED", "REVOKED")
    _print_table(columns, rows, empty="no keys")


def print_tenants(tenants: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show tenants, a line each."""
    names = ("tenant", "jobs", "max_jobs", "fires_per_minute", "max_fires_per_minute")
    rows = [
        [*(_text(tenant[name]) for name in names), ", ".join(map(_text, _list(tenant["task_queues"])))]
        for tenant in tenants
    ]
    _print_table(("TENANT", "JOBS", "OF", "FIRES A MINUTE", "OF", "TASK QUEUES"), rows, empty="no tenants")


def print_encryption_keys(keys: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show which keys open workflows need, a line each."""
    rows = [[_text(key["key_id"] or "(not encrypted)"), _text(key["open_workflows"]), _part_of(key)] for key in keys]
    _print_table(("KEY", "OPEN WORKFLOWS", ""), rows, empty="no keys, and no open workflows")


def _part_of(key: Mapping[str, JsonValue]) -> str:
    if not key["is_known"]:
        return "not in the file of keys"
    return "encrypts" if key["encrypts"] else ""


def print_changes(changes: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show entries of the audit log, a line each."""
    names = ("at", "action", "job_id", "subject", "actor", "actor_name", "outcome", "detail", "request_id")
    rows = [[_text(change[name]) for name in names] for change in changes]
    columns = ("WHEN", "ACTION", "JOB", "SUBJECT", "KEY", "NAME", "OUTCOME", "DETAIL", "REQUEST")
    _print_table(columns, rows, empty="no changes")


def print_preview(answer: Mapping[str, JsonValue]) -> None:
    """Show the next fires of a schedule."""
    console = _console()
    console.print(f"[bold]{_text(answer['description'])}[/]")
    for warning in _list(answer["warnings"]):
        console.print(f"[yellow]warning[/]: {_text(warning)}")
    fires = [fire for fire in _list(answer["fires"]) if isinstance(fire, dict)]
    rows = [(_text(fire["local"]), _text(fire["nominal"]), _text(fire["target"])) for fire in fires]
    _print_table(("LOCAL", "NOMINAL", "TARGET"), rows, empty="no fires after this time")
    removed = [fire for fire in _list(answer["removed"]) if isinstance(fire, dict)]
    if removed:
        rows = [(_text(fire["local"]), _text(fire["nominal"]), _text(fire["reason"])) for fire in removed]
        _print_table(("REMOVED", "NOMINAL", "WHY"), rows, empty="")


def print_calendars(calendars: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show calendars, a line each."""
    rows = [
        tuple(_text(calendar[name]) for name in ("name", "count", "first", "last", "description"))
        for calendar in calendars
    ]
    _print_table(("CALENDAR", "DAYS", "FIRST", "LAST", "DESCRIPTION"), rows, empty="no calendars")


def print_calendar(calendar: Mapping[str, JsonValue]) -> None:
    """Show a calendar and its days."""
    console = _console()
    weekend = ", ".join(map(str, _list(calendar["weekend"]))) or "none"
    console.print(f"[bold]{_text(calendar['name'])}[/]: {_text(calendar['count'])} days; weekend: {weekend}")
    if calendar["description"]:
        console.print(_text(calendar["description"]))
    used_by = ", ".join(map(str, _list(calendar["job_ids"])))
    console.print(f"jobs: {_text(calendar['jobs'])}{f' ({escape(used_by)})' if used_by else ''}")
    days = [day for day in _list(calendar["days"]) if isinstance(day, dict)]
    rows = [(_text(day["from"]), _text(day["to"]), _text(day["name"])) for day in days]
    _print_table(("FROM", "TO", "NAME"), rows, empty="no days")


def print_holds(holds: Sequence[Mapping[str, JsonValue]]) -> None:
    """Show holds, a line each."""
    rows = [
        (
            _text(hold["hold_id"]),
            _text(hold["selector"]),
            _coloured(hold["state"]),
            f"{hold['held']}/{hold['jobs']}",
            _text(hold["created_at"]),
            _text(hold["released_at"] or hold["until"]),
            _text(hold["by"]),
            _text(hold["reason"]),
        )
        for hold in holds
    ]
    _print_table(("HOLD", "SELECTOR", "STATE", "HELD", "SINCE", "UNTIL", "BY", "REASON"), rows, empty="no holds")


def print_hold(hold: Mapping[str, JsonValue]) -> None:
    """Show a hold and the jobs that it is over."""
    for name, value in hold.items():
        if name not in ("labels", "job_ids") and value not in (None, ""):
            _console().print(f"[bold]{name}[/]: {_coloured(value) if name == 'state' else _text(value)}")
    for job_id in _list(hold["job_ids"]):
        _console().print(f"  {_text(job_id)}")


def print_line(text: str) -> None:
    """Show one line, as it stands."""
    _console().print(escape(text))


def show_schedule(schedule: JsonValue) -> str:
    """Write the schedule of a job shortly."""
    if isinstance(schedule, dict):
        return " ".join(f"{name} {value}" for name, value in schedule.items() if name not in ("anchor", "dtstart"))
    return str(schedule)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    if not rows:
        _console().print(empty)
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def _console() -> Console:
    return Console(soft_wrap=False, highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def _is_healthy(job: Mapping[str, JsonValue]) -> bool:
    health = job.get("health")
    return not isinstance(health, dict) or bool(health.get("ok"))


def _coloured(value: JsonValue) -> str:
    colour = _COLOURS.get(str(value))
    return f"[{colour}]{_text(value)}[/]" if colour else _text(value)


def _text(value: JsonValue) -> str:
    return escape(_show_value(value))


def _objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [each for each in _list(value) if isinstance(each, dict)]


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
