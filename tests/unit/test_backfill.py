"""Backfills, step by step and without a server: how many fires, which next, and that each is settled once."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.job_driver import NOON
from workflows.backfill import (
    AGAIN_AFTER,
    LOST_AFTER,
    AdmitReport,
    AdmitRequest,
    BackfillState,
    EndedFire,
    StartedFire,
    TakenFire,
    admit_request,
    backfill_run_id,
    cancel_backfill,
    end_run,
    fires_request,
    first_record,
    is_open,
    judge_fires,
    next_look,
    next_step_at,
    pause_backfill,
    refuse_steering,
    resume_backfill,
    settle_backfill,
    shown_record,
    take_fires,
    take_report,
    with_fires,
)
from workflows.backfill_range import count_fires, list_fires
from workflows.backfill_record import BackfillRecord, BackfillStatus, ExistingRuns
from workflows.job import JobDefinition
from workflows.run import Run, RunKind, RunStatus
from workflows.schedule import CronRule, Exclusions, IntervalRule, Schedule

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

EVERY_MINUTE = Schedule(rule=CronRule(expression="* * * * *"))


def night(minute: int, second: int = 0, microsecond: int = 0) -> datetime:
    """A moment of the small hours."""
    return datetime(2026, 6, 1, 1, minute, second, microsecond, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        (night(0), night(5), 6),
        (night(0), night(0), 1),
        (night(0, 30), night(0, 30), 0),
        (night(0, 1), night(0, 59), 0),
        (night(0, 0, 1), night(5), 5),
        (night(0), night(4, 59, 999_999), 5),
        (night(0), night(5, 0, 1), 6),
        (night(0, 0, 1), night(0, 59, 999_999), 0),
    ],
)
def test_both_ends_of_a_range_belong_to_it(start: datetime, end: datetime, count: int) -> None:
    """SB-159: symmetric, to the microsecond."""
    counted = count_fires(EVERY_MINUTE, job_id="j", start=start, end=end)
    assert (counted.total, counted.is_exact) == (count, True)
    listed = step_through(backfill(count, schedule=EVERY_MINUTE, start=start, end=end, max_concurrent=50))
    assert len(listed) == count
    assert (counted.first, counted.last) == ((listed[0], listed[-1]) if listed else (None, None))


def test_what_is_excluded_is_counted_apart_and_not_run() -> None:
    """Of an hour, the first half is excluded."""
    schedule = EVERY_MINUTE.model_copy(update={"exclude": Exclusions(cron=("0-29 * * * *",))})
    counted = count_fires(schedule, job_id="j", start=night(0), end=night(59))
    assert (counted.total, counted.excluded, counted.first, counted.last) == (30, 30, night(30), night(59))
    listed = step_through(backfill(30, schedule=schedule, start=night(0), end=night(59), max_concurrent=50))
    assert listed == [night(minute) for minute in range(30, 60)]


def test_a_range_of_two_thousand_years_is_counted_at_once() -> None:
    """A job that hardly ever fires, and one that fires every second, of which the number is told as far as it was counted."""
    start, end = datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    rarely = Schedule(rule=CronRule(expression="0 0 29 2 *"))
    assert count_fires(rarely, job_id="j", start=datetime(1901, 1, 1, tzinfo=UTC), end=end).total == 31
    often = Schedule(rule=IntervalRule(every=SECOND))
    counted = count_fires(often, job_id="j", start=start, end=end)
    assert (counted.total > 1_000_000, counted.is_exact) == (True, False)


def backfill(total: int, *, schedule: Schedule | None = None, **fields: Any) -> BackfillState:
    """A backfill of so many minutes after noon."""
    times = {"start": NOON, "end": NOON + (total - 1) * MINUTE, "requested_at": NOON + timedelta(days=1)}
    record = BackfillRecord.model_validate(
        {"tenant": "default", "job_id": "j", "backfill_id": "b", "total": total} | times | fields
    )
    return BackfillState(record=first_record(record), definition=JobDefinition(schedule=schedule or EVERY_MINUTE))


def list_some(state: BackfillState) -> BackfillState:
    """Ask the calculator as long as there is something to ask."""
    while (request := fires_request(state)) is not None:
        state = with_fires(state, list_fires(request))
    return state


def step_through(state: BackfillState) -> list[datetime]:
    """Let a job run whatever it is asked for, and each run end at once; answers the fires in the order of their runs."""
    now = state.record.requested_at
    run: list[datetime] = []
    while is_open(state):
        state = take_fires(list_some(state), now=now)
        request = admit_request(state, now=now)
        if request is not None:
            run += request.nominals
            started = tuple(StartedFire(nominal=each, run_id=f"run-{each}") for each in request.nominals)
            state = take_report(state, request, AdmitReport(started=started), now=now)
            for each in started:
                state = end_run(state, ended(each.nominal))
        state = settle_backfill(state, now=now, is_asking=False)
        now = max(now, next_step_at(state) or now)
    assert state.record.status is BackfillStatus.DONE
    assert state.record.succeeded == len(run)
    return run


def ended(nominal: datetime, status: RunStatus = RunStatus.SUCCESS, *, backfill_id: str = "b") -> Run:
    """The report of a run."""
    times = {"scheduled_at": nominal, "target_at": nominal, "created_at": nominal}
    return Run.model_validate({"kind": RunKind.BACKFILL, "backfill_id": backfill_id, "status": status} | times)


def test_a_backfill_without_fires_is_done_as_soon_as_it_is_asked_for() -> None:
    """And says so: it has nothing to wait for."""
    state = backfill(0, end=NOON - SECOND)
    assert (state.record.status, state.record.finished_at) == (BackfillStatus.DONE, state.record.requested_at)


def test_fires_are_taken_oldest_first_at_the_rate_that_was_asked_for() -> None:
    """Two a minute, however many may be under way at once; and time that was lost is not made up for."""
    state = list_some(backfill(6, max_concurrent=10, rate_per_minute=2.0))
    now = state.record.requested_at
    taken = []
    for _ in range(4):
        state = take_fires(state, now=now)
        taken.append(len(state.taken))
        now += 30 * SECOND
    assert taken == [1, 2, 3, 4]
    assert [each.nominal for each in state.taken] == [NOON + n * MINUTE for n in range(4)]
    state = take_fires(state, now=now + timedelta(hours=1))
    assert len(state.taken) == 6 - 1


class Played:
    """A backfill between a job and its runs, which do what chance wants."""

    def __init__(self, total: int, *, max_concurrent: int, chance: Random) -> None:
        self.state = backfill(total, max_concurrent=max_concurrent)
        self.now = self.state.record.requested_at
        self.chance = chance
        self.most = max_concurrent
        self.asked: AdmitRequest | None = None
        self.running: set[datetime] = set()
        """Runs that the job knows."""

        self.begun: list[datetime] = []
        self.final: dict[datetime, RunStatus] = {}
        """What the mirror knows."""

    def step(self) -> None:
        """Do what the workflow does between two pieces of news."""
        self.state = take_fires(list_some(self.state), now=self.now)
        if self.asked is None:
            self.asked = admit_request(self.state, now=self.now)
        self.state = settle_backfill(self.state, now=self.now, is_asking=self.asked is not None)
        assert len(self.state.taken) <= self.most
        assert len(self.running) <= self.most

    def wait(self) -> None:
        """Let time pass, until there is something to do."""
        self.now = max(self.now + SECOND, next_step_at(self.state) or self.now)

    def answer(self) -> None:
        """Let the job answer: each fire is run, has another run, or has to wait; the answer may be lost on its way."""
        request, self.asked = self.asked, None
        if request is None:
            return
        started, done, skipped = [], [], []
        for nominal in request.nominals:
            what = "known" if nominal in self.begun else self.chance.choice(["start", "start", "skip", "wait"])
            if what == "start":
                self.begun.append(nominal)
                self.running.add(nominal)
            if nominal in self.final:
                done.append(EndedFire(nominal=nominal, status=self.final[nominal]))
            elif nominal in self.running:
                started.append(StartedFire(nominal=nominal, run_id=f"run-{nominal}"))
            elif what == "skip":
                skipped.append(nominal)
        looked_at = [each.nominal for each in request.watched if each.nominal in self.final]
        done += [EndedFire(nominal=nominal, status=self.final[nominal]) for nominal in looked_at]
        report = AdmitReport(started=tuple(started), ended=tuple(done), skipped=tuple(skipped))
        if self.chance.random() < 0.25:
            # What has another run has it when it is asked about again.
            report = AdmitReport(trouble="the answer was lost", skipped=tuple(skipped))
        self.state = take_report(self.state, request, report, now=self.now)

    def end(self) -> None:
        """Let a run end; its report may be lost or come twice, the mirror knows it all the same."""
        if not self.running:
            return
        nominal = self.chance.choice(sorted(self.running))
        status = self.chance.choice([RunStatus.SUCCESS, RunStatus.DEAD, RunStatus.CANCELLED])
        self.running.remove(nominal)
        self.final[nominal] = status
        for _ in range(self.chance.choice([0, 1, 1, 1, 2])):
            self.state = end_run(self.state, ended(nominal, status))

    def steer(self) -> None:
        """Pause it, or let it go on."""
        if refuse_steering(self.state) is None:
            change = self.chance.choice([pause_backfill, resume_backfill, resume_backfill])
            self.state = change(self.state, reason="")


@settings(max_examples=100, deadline=None)
@given(chance=st.randoms(use_true_random=False), total=st.integers(0, 12), most=st.integers(1, 4))
def test_every_fire_is_begun_once_and_counted_once_whatever_happens(chance: Random, total: int, most: int) -> None:
    """Answers and reports are lost, told twice and late; the backfill is paused and resumed."""
    played = Played(total, max_concurrent=most, chance=Random(chance.getrandbits(64)))
    for _ in range(5_000):
        if not is_open(played.state):
            break
        played.step()
        played.chance.choice([played.answer, played.answer, played.end, played.end, played.steer, played.wait])()
    record = played.state.record
    assert record.status is BackfillStatus.DONE
    assert len(played.begun) == len(set(played.begun))
    assert record.succeeded + record.dead + record.cancelled == len(played.begun)
    assert record.succeeded == list(played.final.values()).count(RunStatus.SUCCESS)
    assert record.succeeded + record.dead + record.cancelled + record.skipped == total


def test_a_paused_backfill_takes_nothing_and_a_cancelled_one_waits_for_what_it_has_begun() -> None:
    """Then it is over, and can be neither paused nor resumed."""
    state = take_fires(list_some(backfill(5, max_concurrent=2)), now=NOON)
    request = admit_request(state, now=NOON)
    assert request is not None
    first, second = request.nominals
    state = take_report(state, request, AdmitReport(started=(StartedFire(nominal=first, run_id="r"),)), now=NOON)
    state = pause_backfill(state, reason="the bank is busy")
    later = NOON + AGAIN_AFTER
    looking = admit_request(state, now=later)
    assert looking is not None
    assert looking.nominals == (), "the second was not admitted, and is not asked for now"
    assert take_fires(state, now=later) == state
    state = cancel_backfill(state, reason="by mistake")
    assert refuse_steering(state) == "the backfill is cancelling; it begins no more runs"
    state = settle_backfill(state, now=later, is_asking=False)
    assert shown_record(state).running == ("r",)
    assert state.record.status is BackfillStatus.CANCELLING
    state = settle_backfill(end_run(state, ended(first)), now=later, is_asking=False)
    assert (state.record.status, state.record.succeeded, state.record.reason) == (
        BackfillStatus.CANCELLED,
        1,
        "by mistake",
    )
    assert refuse_steering(state) == "the backfill is cancelled; it begins no more runs"
    assert cancel_backfill(state, reason="again") == state
    assert second == NOON + MINUTE


def test_a_cancelled_backfill_waits_for_the_answer_to_its_last_question() -> None:
    """A run may have been begun of which it has not heard, and which must be counted."""
    state = take_fires(list_some(backfill(1)), now=NOON)
    request = admit_request(state, now=NOON)
    assert request is not None
    state = settle_backfill(cancel_backfill(state, reason=""), now=NOON, is_asking=True)
    assert is_open(state)
    state = take_report(state, request, AdmitReport(started=(StartedFire(nominal=NOON, run_id="r"),)), now=NOON)
    assert is_open(settle_backfill(state, now=NOON, is_asking=False))
    state = settle_backfill(end_run(state, ended(NOON)), now=NOON, is_asking=False)
    assert (state.record.status, state.record.succeeded) == (BackfillStatus.CANCELLED, 1)


def test_a_job_that_is_gone_ends_the_backfill_with_the_reason() -> None:
    """Nothing more can be run; what was begun is waited for."""
    state = take_fires(list_some(backfill(3)), now=NOON)
    request = admit_request(state, now=NOON)
    assert request is not None
    state = take_report(state, request, AdmitReport(gone="the job was deleted"), now=NOON)
    state = settle_backfill(state, now=NOON, is_asking=False)
    assert (state.record.status, state.record.reason) == (BackfillStatus.CANCELLED, "the job was deleted")


def test_silent_runs_are_looked_at_ever_more_rarely_and_one_that_was_never_begun_is_asked_for_again() -> None:
    """After seconds at first, and every five minutes at last."""
    state = take_fires(list_some(backfill(1)), now=NOON)
    request = admit_request(state, now=NOON)
    assert request is not None
    state = take_report(state, request, AdmitReport(started=(StartedFire(nominal=NOON, run_id="r"),)), now=NOON)
    looks = []
    for _ in range(10):
        at = next_look(state)
        assert at is not None
        request = admit_request(state, now=at)
        assert request is not None
        assert admit_request(state, now=at - SECOND) is None
        looks.append(at)
        state = take_report(state, request, AdmitReport(), now=at)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise([NOON, *looks])]
    assert gaps == [3, 3, 6, 12, 24, 48, 96, 192, 300, 300]
    unknown = AdmitReport(unknown=(NOON,))
    assert request is not None
    state = take_report(state, request, unknown, now=NOON + LOST_AFTER)
    assert state.taken[0].run_id == "r", "its row may be on the way"
    state = take_report(state, request, unknown, now=looks[-1])
    again = admit_request(state, now=looks[-1])
    assert again is not None
    assert again.nominals == (NOON,)


def run_at(nominal: datetime, **fields: Any) -> Run:
    """A run as the mirror knows it."""
    times = {"scheduled_at": nominal, "target_at": nominal, "created_at": nominal}
    return Run.model_validate(times | {"run_id": "j:x", "status": RunStatus.SUCCESS} | fields)


def request_for(*nominals: datetime, **fields: Any) -> AdmitRequest:
    """A question of backfill b."""
    return AdmitRequest.model_validate({"job_id": "j", "backfill_id": "b", "nominals": nominals} | fields)


@pytest.mark.parametrize(
    ("known", "skipped"),
    [
        ({}, True),
        ({"status": RunStatus.DEAD}, True),
        ({"status": RunStatus.PENDING, "kind": RunKind.CATCH_UP}, True),
        ({"kind": RunKind.BACKFILL, "backfill_id": "another"}, True),
        ({"kind": RunKind.REDRIVE}, True),
        ({"kind": RunKind.MANUAL}, False),
        ({"status": RunStatus.CANCELLED}, False),
    ],
)
def test_a_time_that_has_a_run_is_passed_over_or_run_again(known: dict[str, Any], skipped: bool) -> None:
    """Whatever came of that run, unless it was cancelled; a trigger answers for no nominal time."""
    run = run_at(NOON, **known)
    report, wanted = judge_fires(request_for(NOON), (run,))
    assert bool(report.skipped) is skipped
    assert bool(wanted) is not skipped
    report, wanted = judge_fires(request_for(NOON, existing=ExistingRuns.RUN_AGAIN), (run,))
    assert (report.skipped, wanted[0].run_id) == ((), "j:backfill-b-20260608T120000Z")


def test_a_backfill_knows_its_own_runs() -> None:
    """An answer was lost: what runs is not asked for again, and what has ended is counted."""
    mine = {"kind": RunKind.BACKFILL, "backfill_id": "b"}
    running = run_at(NOON, **mine, run_id="j:1", status=RunStatus.RUNNING)
    dead = run_at(NOON + MINUTE, **mine, run_id="j:2", status=RunStatus.DEAD)
    report, wanted = judge_fires(request_for(NOON, NOON + MINUTE), (running, dead))
    assert wanted == ()
    assert report.started == (StartedFire(nominal=NOON, run_id="j:1"),)
    assert report.ended == (EndedFire(nominal=NOON + MINUTE, status=RunStatus.DEAD),)


def test_a_watched_run_has_ended_or_goes_on_or_is_another_backfills_or_nobody_knows_it() -> None:
    """What each of these means for the fire."""
    fires = [NOON + n * MINUTE for n in range(4)]
    watched = tuple(TakenFire(nominal=each, taken_at=NOON, run_id=f"j:{n}") for n, each in enumerate(fires))
    known = (
        run_at(fires[0], run_id="j:0", kind=RunKind.BACKFILL, backfill_id="b"),
        run_at(fires[1], run_id="j:1", kind=RunKind.BACKFILL, backfill_id="b", status=RunStatus.RUNNING),
        run_at(fires[2], run_id="j:2", kind=RunKind.BACKFILL, backfill_id="another"),
    )
    report, _ = judge_fires(request_for(watched=watched), known)
    assert [each.nominal for each in report.ended] == [fires[0]]
    assert report.skipped == (fires[2],)
    assert report.unknown == (fires[3],)


def test_two_backfills_that_pass_over_what_has_run_give_a_fire_the_same_name() -> None:
    """So that Temporal lets one of them run it. After a run that was cancelled there is a second name."""
    names = [
        backfill_run_id(request_for(NOON, backfill_id=backfill_id), NOON, known=())
        for backfill_id in ("one", "another")
    ]
    assert names == ["j:backfill-20260608T120000Z"] * 2
    cancelled = run_at(NOON, run_id=names[0], status=RunStatus.CANCELLED)
    second = backfill_run_id(request_for(NOON), NOON, known=(cancelled,))
    assert second == "j:backfill-2-20260608T120000Z"
    again = run_at(NOON, run_id=second, status=RunStatus.CANCELLED)
    assert backfill_run_id(request_for(NOON), NOON, known=(cancelled, again)) == "j:backfill-3-20260608T120000Z"
