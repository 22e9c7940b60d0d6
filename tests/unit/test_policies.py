"""Catch-up and overlap as pure decisions: every fire that goes in comes out once, as a run or in the ledger."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.job import CatchUpPolicy, JobDefinition, LedgerEntry, OverlapPolicy
from workflows.policies import (
    OverlapAction,
    decide_catch_up,
    decide_grace,
    decide_overlap,
    entries_of_missed,
    is_past_deadline,
    may_start_catch_up,
    newest_needed,
    split_newest,
    start_deadline,
    wanted_count,
)
from workflows.run import Outcome, Run, RunKind, RunStatus
from workflows.schedule import Fire, FireRange, FireSurvey

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)


def minute(number: float) -> datetime:
    """A moment after noon."""
    return NOON + timedelta(minutes=number)


def run(number: int, kind: RunKind = RunKind.SCHEDULED, **fields: Any) -> Run:
    """A run of the fire of a minute."""
    return Run(
        run_id=f"r{number}", kind=kind, scheduled_at=minute(number), target_at=minute(number), created_at=NOON, **fields
    )


def survey(pattern: str, *, newest: int) -> FireSurvey:
    """A fire a minute: ``w`` wanted, ``a`` excluded by a, ``b`` excluded by b."""
    ranges: list[FireRange] = []
    wanted: list[Fire] = []
    for number, letter in enumerate(pattern):
        reason = None if letter == "w" else letter
        if ranges and ranges[-1].excluded_by == reason:
            ranges[-1] = ranges[-1].model_copy(update={"last": minute(number), "count": ranges[-1].count + 1})
        else:
            ranges.append(FireRange(first=minute(number), last=minute(number), count=1, excluded_by=reason))
        if reason is None:
            wanted.append(Fire(nominal=minute(number), target=minute(number)))
    return FireSurvey(ranges=tuple(ranges), newest=tuple(wanted[-newest:] if newest else ()), through=minute(10_000))


def minutes_of(entries: Sequence[LedgerEntry | FireRange]) -> list[int]:
    """The minutes that entries cover; their counts must agree with their ends."""
    minutes: list[int] = []
    for entry in entries:
        first, last = ((at - NOON) // timedelta(minutes=1) for at in (entry.first, entry.last))
        assert entry.count == last - first + 1
        minutes += range(first, last + 1)
    return minutes


@pytest.mark.parametrize(
    ("gap", "grace"),
    [
        (timedelta(seconds=1), timedelta(seconds=60)),
        (timedelta(seconds=119), timedelta(seconds=60)),
        (timedelta(minutes=3), timedelta(seconds=90)),
        (timedelta(minutes=19), timedelta(minutes=9, seconds=30)),
        (timedelta(hours=1), timedelta(minutes=10)),
        (timedelta(days=7), timedelta(minutes=10)),
        (None, timedelta(minutes=10)),
    ],
)
def test_the_default_grace_is_half_the_period_within_its_bounds(gap: timedelta | None, grace: timedelta) -> None:
    """Half the period, at least 60 s, at most 10 min; a one-off has the longest."""
    assert decide_grace(JobDefinition(), shortest_gap=gap) == grace


def test_the_owner_sets_the_grace_and_a_deadline_goes_first() -> None:
    """Under ``DEADLINE`` a fire is live until its deadline; a maximum delay under other policies means nothing."""
    gap = timedelta(hours=1)
    second = timedelta(seconds=1)
    assert decide_grace(JobDefinition(misfire_grace=second), shortest_gap=gap) == second
    deadline = JobDefinition(missed_window=CatchUpPolicy.DEADLINE, max_delay=2 * second, misfire_grace=second)
    assert decide_grace(deadline, shortest_gap=gap) == 2 * second
    assert decide_grace(JobDefinition(max_delay=2 * second), shortest_gap=gap) == timedelta(minutes=10)


Row = tuple[str, list[int], list[tuple[list[int], Outcome]]]

CATCH_UPS: dict[str, tuple[CatchUpPolicy, str, list[int], list[tuple[list[int], Outcome]]]] = {
    "skip": (CatchUpPolicy.SKIP, "www", [], [([0, 1, 2], Outcome.MISSED)]),
    "deadline": (CatchUpPolicy.DEADLINE, "ww", [], [([0, 1], Outcome.MISSED)]),
    "once": (CatchUpPolicy.RUN_ONCE, "wwww", [3], [([0, 1, 2], Outcome.COALESCED)]),
    "once, single": (CatchUpPolicy.RUN_ONCE, "w", [0], []),
    "once, nothing wanted": (CatchUpPolicy.RUN_ONCE, "aab", [], [([0, 1], Outcome.EXCLUDED), ([2], Outcome.EXCLUDED)]),
    "once, excluded last": (
        CatchUpPolicy.RUN_ONCE,
        "wwa",
        [1],
        [([0], Outcome.COALESCED), ([2], Outcome.EXCLUDED)],
    ),
    "once, excluded between": (
        CatchUpPolicy.RUN_ONCE,
        "wwaw",
        [3],
        [([0, 1], Outcome.COALESCED), ([2], Outcome.EXCLUDED)],
    ),
    "all": (CatchUpPolicy.RUN_ALL, "ww", [0, 1], []),
    "all, too many": (CatchUpPolicy.RUN_ALL, "wwwww", [2, 3, 4], [([0, 1], Outcome.DROPPED)]),
    "all, too many in pieces": (
        CatchUpPolicy.RUN_ALL,
        "wwawbww",
        [3, 5, 6],
        [([0, 1], Outcome.DROPPED), ([2], Outcome.EXCLUDED), ([4], Outcome.EXCLUDED)],
    ),
    "nothing": (CatchUpPolicy.RUN_ALL, "", [], []),
}


@pytest.mark.parametrize(("policy", "pattern", "runs", "entries"), CATCH_UPS.values(), ids=CATCH_UPS)
def test_catch_up_decides_as_the_table_says(
    policy: CatchUpPolicy, pattern: str, runs: list[int], entries: list[tuple[list[int], Outcome]]
) -> None:
    """Worked out by hand, with ``max_missed`` 3."""
    definition = JobDefinition(missed_window=policy, max_missed=3)
    decision = decide_catch_up(
        definition, survey(pattern, newest=newest_needed(definition)), run_id_of_newest="the-newest"
    )
    assert [fire.nominal for fire in decision.run] == [minute(number) for number in runs]
    assert [(minutes_of([entry]), entry.outcome) for entry in decision.ledger] == entries


def test_run_once_says_for_how_many_it_stands_and_they_say_in_what_they_went() -> None:
    """Excluded fires are not among them."""
    definition = JobDefinition()
    decision = decide_catch_up(definition, survey("wwwaaw", newest=2), run_id_of_newest="the-newest")
    assert decision.stands_for == 4
    assert [(entry.run_id, entry.reason) for entry in decision.ledger] == [("the-newest", None), (None, "a")]


@given(
    pattern=st.text(alphabet="wwwwab", max_size=60),
    policy=st.sampled_from(CatchUpPolicy),
    max_missed=st.integers(0, 20),
    more=st.integers(0, 5),
)
def test_every_missed_fire_comes_out_exactly_once(
    pattern: str, policy: CatchUpPolicy, max_missed: int, more: int
) -> None:
    """As a run or in the ledger, in order, whatever excludes its neighbours; seeing more of the newest changes nothing."""
    definition = JobDefinition(missed_window=policy, max_missed=max_missed)
    given_survey = survey(pattern, newest=newest_needed(definition) + more)
    decision = decide_catch_up(definition, given_survey, run_id_of_newest="the-newest")
    run_minutes = [(fire.nominal - NOON) // timedelta(minutes=1) for fire in decision.run]
    told = minutes_of(decision.ledger)
    assert sorted([*run_minutes, *told]) == list(range(len(pattern)))
    assert run_minutes == sorted(run_minutes)
    assert told == sorted(told)
    excluded = [entry for entry in decision.ledger if entry.outcome is Outcome.EXCLUDED]
    assert minutes_of(excluded) == [number for number, letter in enumerate(pattern) if letter != "w"]
    coalesced = sum(entry.count for entry in decision.ledger if entry.outcome is Outcome.COALESCED)
    assert decision.stands_for == 1 + coalesced


@given(pattern=st.text(alphabet="wwab", max_size=40), keep=st.integers(0, 10))
def test_splitting_off_the_newest_loses_nothing(pattern: str, keep: int) -> None:
    """What is kept is the newest wanted; what is left keeps its order, its kinds and its ends."""
    given_survey = survey(pattern, newest=keep + 1)
    left, kept = split_newest(given_survey, keep=keep)
    wanted = [number for number, letter in enumerate(pattern) if letter == "w"]
    assert [fire.nominal for fire in kept] == [minute(number) for number in (wanted[-keep:] if keep else [])]
    assert wanted_count(left) + len(kept) == len(wanted)
    assert minutes_of(left) == [
        number for number in range(len(pattern)) if minute(number) not in {f.nominal for f in kept}
    ]


def test_what_is_too_old_is_missed_but_for_what_is_excluded() -> None:
    """``lookback_seconds`` bounds what is considered; an excluded fire is excluded, however old."""
    entries = entries_of_missed(survey("wwaw", newest=0).ranges, reason="older than that")
    assert [(minutes_of([entry]), entry.outcome, entry.reason) for entry in entries] == [
        ([0, 1], Outcome.MISSED, "older than that"),
        ([2], Outcome.EXCLUDED, "a"),
        ([3], Outcome.MISSED, "older than that"),
    ]


START, WAIT, SKIP, DROP = OverlapAction.START, OverlapAction.WAIT, OverlapAction.SKIP, OverlapAction.DROP

OVERLAPS: list[tuple[OverlapPolicy, int, int, OverlapAction]] = [
    # policy, live runs active, fires waiting, what a live fire does; max_concurrent 2, max_buffered 2
    *((policy, 0, 0, START) for policy in OverlapPolicy),
    (OverlapPolicy.SKIP, 1, 0, SKIP),
    (OverlapPolicy.BUFFER_ONE, 1, 0, WAIT),
    (OverlapPolicy.BUFFER_ONE, 1, 1, SKIP),
    (OverlapPolicy.BUFFER_ONE, 0, 1, SKIP),
    (OverlapPolicy.BUFFER_ALL, 1, 0, WAIT),
    (OverlapPolicy.BUFFER_ALL, 1, 1, WAIT),
    (OverlapPolicy.BUFFER_ALL, 0, 1, WAIT),
    (OverlapPolicy.BUFFER_ALL, 1, 2, DROP),
    (OverlapPolicy.CANCEL_OTHER, 1, 0, WAIT),
    (OverlapPolicy.CANCEL_OTHER, 1, 1, WAIT),
    (OverlapPolicy.TERMINATE_OTHER, 1, 0, START),
    (OverlapPolicy.ALLOW, 1, 0, START),
    (OverlapPolicy.ALLOW, 2, 0, SKIP),
    (OverlapPolicy.ALLOW, 3, 0, SKIP),
]


@pytest.mark.parametrize(("policy", "active", "waiting", "action"), OVERLAPS)
def test_overlap_decides_as_the_table_says(
    policy: OverlapPolicy, active: int, waiting: int, action: OverlapAction
) -> None:
    """Every policy, alone and with runs and fires in its way; who does not start is told what blocked it, or why."""
    definition = JobDefinition(overlap=policy, max_concurrent=2, max_buffered=2)
    runs = tuple(run(number) for number in range(active))
    held = tuple(run(10 + number) for number in range(waiting))
    decision = decide_overlap(definition, active=runs, waiting=held)
    assert decision.action is action
    if action is not START:
        assert decision.blocked_by == (runs or held)[0].run_id
    if action in (SKIP, DROP):
        assert decision.reason is not None
        assert decision.reason.startswith("overlap")


def test_replacing_policies_name_whom_they_replace() -> None:
    """``cancel_other`` asks the active ones and takes the place of those that wait; ``terminate_other`` gives them up."""
    active, waiting = (run(1), run(2)), (run(3),)
    cancel = decide_overlap(JobDefinition(overlap=OverlapPolicy.CANCEL_OTHER), active=active, waiting=waiting)
    assert (cancel.cancel, cancel.give_up, cancel.replace) == (("r1", "r2"), (), ("r3",))
    terminate = decide_overlap(JobDefinition(overlap=OverlapPolicy.TERMINATE_OTHER), active=active, waiting=())
    assert (terminate.cancel, terminate.give_up) == ((), ("r1", "r2"))


@pytest.mark.parametrize("policy", OverlapPolicy)
@pytest.mark.parametrize(
    "other",
    [
        run(1, RunKind.CATCH_UP),
        run(1, RunKind.BACKFILL),
        run(1, superseded=True),
    ],
    ids=["catch_up", "backfill", "superseded"],
)
def test_what_has_a_lane_of_its_own_blocks_nobody(policy: OverlapPolicy, other: Run) -> None:
    """Missed fires, backfills and runs of an earlier registration neither delay a live fire nor are replaced by it."""
    decision = decide_overlap(JobDefinition(overlap=policy), active=(other,), waiting=())
    assert (decision.action, decision.cancel, decision.give_up) == (START, (), ())


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.RETRYING, RunStatus.PARKED, RunStatus.PENDING])
def test_a_run_is_in_the_way_until_it_is_final(status: RunStatus) -> None:
    """Retrying and parked runs are active."""
    decision = decide_overlap(JobDefinition(), active=(run(1, status=status),), waiting=())
    assert decision.action is SKIP


@pytest.mark.parametrize(
    ("overlap", "active", "free"),
    [
        (OverlapPolicy.SKIP, (), True),
        (OverlapPolicy.SKIP, (run(1),), False),
        (OverlapPolicy.SKIP, (run(1, superseded=True),), True),
        (OverlapPolicy.ALLOW, (run(1),), True),
        (OverlapPolicy.ALLOW, (run(1), run(2)), False),
        (OverlapPolicy.ALLOW, (run(1, RunKind.CATCH_UP),), False),
        (OverlapPolicy.SKIP, (run(1, RunKind.CATCH_UP, superseded=True),), True),
    ],
)
def test_the_catch_up_lane_is_free_beside_what_would_let_a_live_fire_in(
    overlap: OverlapPolicy, active: tuple[Run, ...], free: bool
) -> None:
    """One catch-up run at a time, and none beside as many runs as the policy allows."""
    assert may_start_catch_up(JobDefinition(overlap=overlap, max_concurrent=2), active=active) is free


def test_a_deadline_is_for_live_runs_under_its_policy_alone() -> None:
    """Inclusive: a run may start at the very end of its delay."""
    deadline = JobDefinition(missed_window=CatchUpPolicy.DEADLINE, max_delay=timedelta(minutes=2))
    assert start_deadline(deadline, run(1)) == minute(3)
    assert not is_past_deadline(deadline, run(1), now=minute(3))
    assert is_past_deadline(deadline, run(1), now=minute(3.01))
    assert start_deadline(deadline, run(1, RunKind.MANUAL)) is None
    assert start_deadline(JobDefinition(max_delay=timedelta(minutes=2)), run(1)) is None
