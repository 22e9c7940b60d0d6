"""What to do about missed and overlapping fires.

Pure decisions: frozen values in, frozen values out, ``now`` an argument. Every nominal fire that goes in comes out either as
a run or as a ledger entry, never both and never neither.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from workflows.job import CatchUpPolicy, JobDefinition, JobState, LedgerEntry, OverlapPolicy
from workflows.run import Outcome, Run, RunKind
from workflows.schedule import Fire, FireRange, FireSurvey

SHORTEST_GRACE = timedelta(seconds=60)
LONGEST_GRACE = timedelta(minutes=10)
"""Bounds of the default grace: a restart of a worker is no miss, and a daily report at noon is not "on time"."""


def decide_grace(definition: JobDefinition, *, shortest_gap: timedelta | None) -> timedelta:
    """Say how long after its target a fire is still live.

    Half the shortest gap between 60 s and 10 min, the longest for one-offs, unless the owner says otherwise; under
    ``DEADLINE`` the deadline itself.
    """
    if definition.missed_window is CatchUpPolicy.DEADLINE and definition.max_delay is not None:
        return definition.max_delay
    if definition.misfire_grace is not None:
        return definition.misfire_grace
    if shortest_gap is None:
        return LONGEST_GRACE
    return max(SHORTEST_GRACE, min(shortest_gap / 2, LONGEST_GRACE))


@dataclass(frozen=True, kw_only=True)
class CatchUpDecision:
    """What becomes of a survey of missed fires."""

    run: tuple[Fire, ...] = ()
    """Fires that get a catch-up run each, oldest first."""

    stands_for: int = 1
    """How many fires each of them answers for."""

    ledger: tuple[LedgerEntry, ...] = ()


def decide_catch_up(definition: JobDefinition, survey: FireSurvey, *, run_id_of_newest: str) -> CatchUpDecision:
    """Apply the catch-up policy to fires that were seen too late.

    ``run_id_of_newest`` is the name that a run for the survey's newest fire would have.
    """
    match definition.missed_window:
        case CatchUpPolicy.SKIP:
            return CatchUpDecision(ledger=_entries(survey.ranges, Outcome.MISSED, reason="missed_window is SKIP"))
        case CatchUpPolicy.DEADLINE:
            return CatchUpDecision(ledger=_entries(survey.ranges, Outcome.MISSED, reason="max_delay_seconds is over"))
        case CatchUpPolicy.RUN_ONCE:
            older, kept = split_newest(survey, keep=1)
            entries = _entries(older, Outcome.COALESCED, run_id=run_id_of_newest if kept else None)
            return CatchUpDecision(run=kept, stands_for=1 + wanted_count(older), ledger=entries)
        case CatchUpPolicy.RUN_ALL:
            older, kept = split_newest(survey, keep=definition.max_missed)
            reason = f"more than max_missed ({definition.max_missed}) fires were missed"
            return CatchUpDecision(run=kept, ledger=_entries(older, Outcome.DROPPED, reason=reason))
        case _:
            assert_never(definition.missed_window)


def newest_needed(definition: JobDefinition) -> int:
    """Say how many of the newest missed fires ``decide_catch_up`` must see: those that may run, and one before them."""
    match definition.missed_window:
        case CatchUpPolicy.SKIP | CatchUpPolicy.DEADLINE:
            return 0
        case CatchUpPolicy.RUN_ONCE:
            return 2
        case CatchUpPolicy.RUN_ALL:
            return definition.max_missed + 1
        case _:
            assert_never(definition.missed_window)


def wanted_count(ranges: tuple[FireRange, ...]) -> int:
    """Count the fires that nothing excludes."""
    return sum(each.count for each in ranges if each.excluded_by is None)


def split_newest(survey: FireSurvey, *, keep: int) -> tuple[tuple[FireRange, ...], tuple[Fire, ...]]:
    """Take the newest ``keep`` wanted fires out of a survey; answer what is left, and them.

    The survey must list one more of the newest than ``keep``, where it has as many: a range that loses its end needs the
    time of the fire before.
    """
    kept = survey.newest[-keep:] if keep else ()
    before = survey.newest[-keep - 1].nominal if len(survey.newest) > keep else None
    left: list[FireRange] = []
    to_take = len(kept)
    for each in reversed(survey.ranges):
        if each.excluded_by is not None or not to_take:
            left.append(each)
            continue
        taken = min(to_take, each.count)
        to_take -= taken
        if taken < each.count:
            last = before if before is not None else each.last
            left.append(each.model_copy(update={"count": each.count - taken, "last": last}))
    return tuple(reversed(left)), kept


def entries_of_excluded(ranges: tuple[FireRange, ...]) -> tuple[LedgerEntry, ...]:
    """Turn ranges that an exclusion names into ledger entries; ranges of wanted fires are passed over."""
    return tuple(
        LedgerEntry(
            first=each.first, last=each.last, count=each.count, outcome=Outcome.EXCLUDED, reason=each.excluded_by
        )
        for each in ranges
        if each.excluded_by is not None
    )


def entries_of_missed(ranges: tuple[FireRange, ...], *, reason: str) -> tuple[LedgerEntry, ...]:
    """Turn ranges into ledger entries: missed for ``reason``, but excluded where something excludes them."""
    return _entries(ranges, Outcome.MISSED, reason=reason)


def entries_of_standstill(ranges: tuple[FireRange, ...], *, outcome: Outcome, reason: str) -> tuple[LedgerEntry, ...]:
    """Turn ranges into ledger entries: paused or held, but excluded where something excludes them."""
    return _entries(ranges, outcome, reason=reason)


def _entries(
    ranges: tuple[FireRange, ...], outcome: Outcome, *, reason: str | None = None, run_id: str | None = None
) -> tuple[LedgerEntry, ...]:
    wanted = [
        LedgerEntry(first=each.first, last=each.last, count=each.count, outcome=outcome, reason=reason, run_id=run_id)
        for each in ranges
        if each.excluded_by is None
    ]
    return tuple(sorted([*wanted, *entries_of_excluded(ranges)], key=lambda entry: entry.first))


LANE: Final = frozenset({RunKind.CATCH_UP, RunKind.BACKFILL, RunKind.REDRIVE})
"""Kinds of runs that stand aside for live fires: at a bounded rate, with low priority. Of missed and redriven fires one of a job
runs at a time; backfills have bounds of their own."""


class OverlapAction(StrEnum):
    """What a live fire does now."""

    START = "start"
    WAIT = "wait"
    """Until the runs in its way have ended."""

    SKIP = "skip"
    DROP = "drop"
    """The buffer is full."""


@dataclass(frozen=True, kw_only=True)
class OverlapDecision:
    """What a live fire does, and to whom."""

    action: OverlapAction
    blocked_by: str | None = None
    """The run in its way."""

    reason: str | None = None
    cancel: tuple[str, ...] = ()
    """Runs to cancel, and to wait for."""

    give_up: tuple[str, ...] = ()
    """Runs to end at once; whatever they still do is refused by the fence."""

    replace: tuple[str, ...] = ()
    """Waiting runs whose place this one takes."""


def decide_overlap(definition: JobDefinition, *, active: tuple[Run, ...], waiting: tuple[Run, ...]) -> OverlapDecision:
    """Apply the overlap policy to one live fire.

     Only live runs are in its way: catch-up and backfill runs have a lane of their own and never delay a live fire
    . A run that is retrying or parked is active.
    """
    blocking = tuple(run for run in active if is_blocking(run))
    if not blocking and not waiting:
        return OverlapDecision(action=OverlapAction.START)
    blocker = blocking[0].run_id if blocking else waiting[0].run_id
    match definition.overlap:
        case OverlapPolicy.SKIP:
            return OverlapDecision(action=OverlapAction.SKIP, blocked_by=blocker, reason="overlap")
        case OverlapPolicy.BUFFER_ONE:
            if waiting:
                return OverlapDecision(
                    action=OverlapAction.SKIP, blocked_by=blocker, reason="overlap: one fire waits already"
                )
            return OverlapDecision(action=OverlapAction.WAIT, blocked_by=blocker)
        case OverlapPolicy.BUFFER_ALL:
            if len(waiting) >= definition.max_buffered:
                reason = f"overlap: max_buffered ({definition.max_buffered}) fires wait already"
                return OverlapDecision(action=OverlapAction.DROP, blocked_by=blocker, reason=reason)
            return OverlapDecision(action=OverlapAction.WAIT, blocked_by=blocker)
        case OverlapPolicy.CANCEL_OTHER:
            return OverlapDecision(
                action=OverlapAction.WAIT,
                blocked_by=blocker,
                cancel=tuple(run.run_id for run in blocking),
                replace=tuple(run.run_id for run in waiting),
            )
        case OverlapPolicy.TERMINATE_OTHER:
            return OverlapDecision(action=OverlapAction.START, give_up=tuple(run.run_id for run in blocking))
        case OverlapPolicy.ALLOW:
            if len(blocking) >= definition.max_concurrent:
                reason = f"overlap: max_concurrent ({definition.max_concurrent}) runs are active"
                return OverlapDecision(action=OverlapAction.SKIP, blocked_by=blocker, reason=reason)
            return OverlapDecision(action=OverlapAction.START)
        case _:
            assert_never(definition.overlap)


def is_blocking(run: Run) -> bool:
    """Say whether a run is in the way of live fires: not those of the catch-up lane, nor of an earlier registration."""
    return not run.superseded and run.kind not in LANE


def is_used_up(state: JobState) -> bool:
    """Say whether ``max_runs`` is reached: then there are no fires, until a run gives its place back without having started."""
    return state.definition.schedule.max_runs is not None and state.counts.started >= state.definition.schedule.max_runs


def start_deadline(definition: JobDefinition, run: Run) -> datetime | None:
    """Say until when, inclusive, a run may make its first attempt; ``None`` under any policy but ``DEADLINE``."""
    if definition.missed_window is not CatchUpPolicy.DEADLINE or definition.max_delay is None:
        return None
    return run.target_at + definition.max_delay if run.kind is RunKind.SCHEDULED else None


def is_past_deadline(definition: JobDefinition, run: Run, *, now: datetime) -> bool:
    """Say whether a run may no longer make its first attempt."""
    deadline = start_deadline(definition, run)
    return deadline is not None and now > deadline


def may_start_catch_up(definition: JobDefinition, *, active: tuple[Run, ...]) -> bool:
    """Say whether the lane of missed and redriven fires is free.

    One of them runs at a time, and it begins only beside live runs that would have let a live fire in. Backfills are in nobody's
    way, and nobody is in theirs.
    """
    current = tuple(run for run in active if not run.superseded and run.kind is not RunKind.BACKFILL)
    if any(run.kind in LANE for run in current):
        return False
    allowed = definition.max_concurrent if definition.overlap is OverlapPolicy.ALLOW else 1
    return len(current) < allowed
