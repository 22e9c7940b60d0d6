"""The dead letters: runs that ended ``dead``, over all jobs of a tenant, in the order of their ends.

There is no table of them: a run that is dead is its own dead letter, so each final failure is there exactly once. Pure but for
being SQL: builds statements.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, literal, select, tuple_

from activities.mirror_row import storable
from activities.tables import JOBS, KEY, RUNS, UtcDateTime
from workflows.dead_letter import DeadLetterFilter, LetterPlace
from workflows.run import RunStatus


def select_dead_letters(
    tenant: str,
    chosen: DeadLetterFilter,
    *,
    beyond: LetterPlace | None = None,
    oldest_first: bool = False,
    label_conditions: tuple[ColumnElement[bool], ...] = (),
) -> Select[Any]:
    """Select dead letters, the newest first, or the oldest; ``beyond`` is the last one seen before, in that order.

    ``label_conditions`` are those of ``chosen.labels``, on ``jobs``, which each database words in its own way.
    """
    query = select(RUNS).where(RUNS.c.tenant == storable(tenant), is_dead(), *_conditions(chosen))
    if label_conditions:
        of_job = select(literal(1)).where(JOBS.c.tenant == RUNS.c.tenant, JOBS.c.job_id == RUNS.c.job_id)
        query = query.where(exists(of_job.where(*label_conditions).correlate(RUNS)))
    if beyond is not None:
        here = tuple_(RUNS.c.finished_at, RUNS.c.run_id)
        there = tuple_(literal(beyond.finished_at, UtcDateTime), literal(storable(beyond.run_id), KEY))
        query = query.where(here > there if oldest_first else here < there)
    keys = (RUNS.c.finished_at, RUNS.c.run_id)
    return query.order_by(*(keys if oldest_first else (key.desc() for key in keys)))


def is_dead() -> ColumnElement[bool]:
    """Say that a run is a dead letter. Spelled out, not bound, so that it is seen to match the partial index."""
    return RUNS.c.status == literal(RunStatus.DEAD.value, literal_execute=True)


def _conditions(chosen: DeadLetterFilter) -> Iterator[ColumnElement[bool]]:
    if chosen.job_id is not None:
        yield RUNS.c.job_id == storable(chosen.job_id)
    if chosen.reason:
        yield RUNS.c.reason.startswith(storable(chosen.reason), autoescape=True)
    if chosen.start is not None:
        yield RUNS.c.finished_at >= chosen.start
    if chosen.end is not None:
        yield RUNS.c.finished_at <= chosen.end
    if chosen.redriven is not None:
        yield RUNS.c.redriven_by.is_not(None) if chosen.redriven else RUNS.c.redriven_by.is_(None)
