"""Idempotency keys of runs, from the owner's template.

A key names one intended effect: the same for every attempt of a run. Pure; the zone is applied only here, to say which
day, week or hour a nominal time belongs to for the owner of the job.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from workflows.error import HorariumError
from workflows.zone import load_zone

DEFAULT_TEMPLATE: Final = "{{job_id}}:{{scheduled_at_unix}}"

TEMPLATE_LIMIT: Final = 200
"""Characters of a template. A rendered key travels in a header, where receivers are known to take 255."""

_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z0-9_]*)\s*\}\}")
_UNREADABLE: Final = re.compile(r"\{\{|\}\}")
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


class InvalidTemplate(HorariumError):
    """A template that cannot be rendered. ``position`` is the zero-based index of the first offending character."""

    def __init__(self, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """The run that a key is made for."""

    tenant: str
    job_id: str
    scheduled_at: datetime
    local: datetime
    request_id: str


def _iso_week(local: datetime) -> str:
    # The ISO year, not the calendar's: 2027-01-01 lies in 2026-W53.
    year, week, _ = local.isocalendar()
    return f"{year:04}-W{week:02}"


_VARIABLES: Final[dict[str, Callable[[_Subject], str]]] = {
    "tenant": lambda run: run.tenant,
    "job_id": lambda run: run.job_id,
    "request_id": lambda run: run.request_id,
    "scheduled_at_unix": lambda run: str(int(run.scheduled_at.timestamp())),
    "scheduled_at": lambda run: f"{run.scheduled_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    "year": lambda run: f"{run.local.year:04}",
    "quarter": lambda run: f"{run.local.year:04}-Q{(run.local.month + 2) // 3}",
    "month": lambda run: f"{run.local.year:04}-{run.local.month:02}",
    "week": lambda run: _iso_week(run.local),
    "date": lambda run: run.local.date().isoformat(),
    # With the offset, because an autumn night has the same hour twice.
    "hour": lambda run: f"{run.local.date().isoformat()}T{run.local:%H%z}",
    "minute": lambda run: f"{run.local.date().isoformat()}T{run.local:%H:%M%z}",
}

VARIABLES: Final = tuple(_VARIABLES)
"""What a template may name, between double braces."""


def check_template(template: str) -> None:
    """Refuse, with ``InvalidTemplate``, a template that could not be rendered for some run."""
    if not template.strip():
        raise InvalidTemplate("the template is empty")
    if len(template) > TEMPLATE_LIMIT:
        raise InvalidTemplate(f"{len(template)} characters; {TEMPLATE_LIMIT} are allowed")
    if found := _UNPRINTABLE.search(template):
        raise InvalidTemplate("only printable ASCII characters may stand in a key", position=found.start())
    for variable in _VARIABLE.finditer(template):
        if variable[1] not in _VARIABLES:
            known = ", ".join(VARIABLES)
            raise InvalidTemplate(f"there is no variable {variable[0]}; known are {known}", position=variable.start())
    rest = _VARIABLE.sub(lambda variable: " " * len(variable[0]), template)
    if found := _UNREADABLE.search(rest):
        raise InvalidTemplate("a variable is written {{name}}; these braces have no partner", position=found.start())


def is_constant(template: str) -> bool:
    """Say whether all runs of a job would share one key, so that effects guarded by it happen once and never again."""
    names = {variable[1] for variable in _VARIABLE.finditer(template)}
    return names <= {"tenant", "job_id"}


def render_idempotency_key(
    template: str, *, tenant: str, job_id: str, scheduled_at: datetime, timezone: str, request_id: str | None = None
) -> str:
    """Write the key of one run.

    ``request_id`` is that of the trigger or run-again behind the run, ``None`` for a fire. The default template gets it
    appended, because such a run is an intent of its own. Any other template is taken at its word: who writes
    ``report-{{week}}`` asks for one effect a week, however often the job is triggered.
    """
    subject = _Subject(
        tenant=tenant,
        job_id=job_id,
        scheduled_at=scheduled_at,
        local=scheduled_at.astimezone(load_zone(timezone)),
        request_id=request_id or "",
    )
    key = _VARIABLE.sub(lambda variable: _VARIABLES[variable[1]](subject), template)
    return f"{key}:{request_id}" if request_id and template == DEFAULT_TEMPLATE else key
