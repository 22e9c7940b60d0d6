"""Jobs on the real workflow, led through any sequence of what people and machines do to them, beside a model of plain arithmetic.

Hypothesis chooses the steps; after each of them the mirror must tell each fire that is due once, with the outcome that the model
has for it, the next fire must be the model's, and every backfill must have run what it was asked for.

On a server that skips time hours pass in moments, but its workers stay and nothing is backfilled. It never takes a workflow task
back from the queue of a worker that keeps the workflow in its cache, neither after the queue's timeout nor when the worker says
goodbye: whatever has left in that way waits forever. Workers without a cache can be restarted there, but each of their tasks is a
replay, and the timer that it cancels may fire before it ends; then it is refused and never given out again. After backfills its
clock stands still now and then, with no workflow of theirs left and no task out. So workers are restarted and backfills asked for
on the real server, where seconds are seconds.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.eventually import LIMIT, eventually
from tests.temporal_servers import connect_to
from tests.unit.job_driver import TICK, Grid
from tests.unit.job_driver import every as grid_schedule
from tests.workflow.harness import QUICK, Harness, MemoryMirror, Planner, job, running, skipping_time, working
from tests.workflow.mortal_workers import MortalHarness, Zygote
from workers.devserver import DevServer
from workflows.backfill_record import BackfillRecord, BackfillStatus, ExistingRuns
from workflows.job import CatchUpPolicy, JobDefinition, JobRecord, Lifecycle, PausedFires, RetryPolicy
from workflows.run import Outcome, Run, RunKind, RunStatus

LONG = os.environ.get("HORARIUM_CHAOS") == "long"

Answer = TypeVar("Answer")

GRIDS: st.SearchStrategy[Grid] = st.runner().flatmap(lambda machine: machine.stage.pace.grids)
"""Schedules that fit the pace of time."""

MOMENTS = st.sampled_from([0.0, 0.01, 0.03, 0.1, 0.3, 1.0])
"""Seconds between the beginning of something and the death of the workers."""

JUST_BEFORE = timedelta(milliseconds=30)

PERIODS = st.sampled_from([0.3, 1.0, 2.6])
"""How long time passes, in periods of the schedule."""


@dataclass(frozen=True)
class Era:
    """A time with one schedule: of the fires after its beginning."""

    begun: datetime
    revision: int
    grid: Grid


@dataclass(frozen=True)
class PauseSpan:
    """A pause: of the fires after its beginning, until its end."""

    begun: datetime
    until: datetime | None
    catch_up: PausedFires
    ended: datetime | None = None
    was_changed: bool = False
    """A change settles what the pause has held back so far, whatever was asked for."""

    def covers(self, nominal: datetime) -> bool:
        """Whether a fire falls into it."""
        return self.begun < nominal and (self.ended is None or nominal <= self.ended)


@dataclass(frozen=True)
class Backfilled:
    """A backfill: how many fires its range has, and which of them it runs."""

    total: int
    existing: ExistingRuns
    run: frozenset[datetime]
    doubtful: frozenset[datetime]
    """Fires that something else may run before it does: it runs them, or passes over them."""

    is_open: bool
    """Whether nobody has waited for its end."""


@dataclass
class Model:
    """What must become of every fire, by the times at which things were done."""

    eras: list[Era]
    pauses: list[PauseSpan] = field(default_factory=list)
    consumed: set[datetime] = field(default_factory=set)
    backfills: dict[str, Backfilled] = field(default_factory=dict)

    @property
    def grid(self) -> Grid:
        """The present one."""
        return self.eras[-1].grid

    @property
    def pause(self) -> PauseSpan | None:
        """The present one."""
        return self.pauses[-1] if self.pauses and self.pauses[-1].ended is None else None

    def pass_time(self, now: datetime) -> None:
        """A pause that ends by itself may have ended."""
        if self.pause is not None and self.pause.until is not None and self.pause.until <= now:
            self.end_pause(at=self.pause.until, catch_up=self.pause.catch_up)

    def end_pause(self, *, at: datetime, catch_up: PausedFires) -> None:
        """Resume."""
        assert self.pause is not None
        self.pauses[-1] = replace(self.pause, ended=at, catch_up=catch_up)

    def change(self, grid: Grid, *, revision: int, at: datetime) -> None:
        """Another schedule. What a trigger used up of the old one's future counts for nothing."""
        if self.pause is not None:
            self.pauses[-1] = replace(self.pause, was_changed=True)
        if grid != self.grid:
            self.consumed = {nominal for nominal in self.consumed if nominal <= at}
            self.eras.append(Era(at, revision, grid))

    def fires(self, through: datetime) -> Iterator[tuple[datetime, bool]]:
        """List all fires so far, and whether each is wanted."""
        ends = [*(era.begun for era in self.eras[1:]), through]
        for era, end in zip(self.eras, ends, strict=True):
            yield from era.grid.fires(era.begun, min(end, through))

    def end_of(self, revision: int) -> datetime | None:
        """Say when the schedule of a revision was replaced."""
        return next((era.begun for era in self.eras if era.revision > revision), None)

    def told_ahead(self, now: datetime) -> set[datetime]:
        """List what may be told before its time: what was used up, and the excluded fires before it."""
        last = max(self.consumed, default=now)
        excluded = {nominal for nominal, wanted in self.grid.fires(now, max(now, last)) if not wanted}
        return self.consumed | excluded

    def is_due(self, nominal: datetime) -> bool:
        """Whether a fire in the past must have an outcome by now."""
        return self.pause is None or not self.pause.covers(nominal)

    def allowed(self, nominal: datetime, *, wanted: bool) -> frozenset[Outcome]:
        """Say which outcomes are right for a fire."""
        if nominal in self.consumed:
            return frozenset({Outcome.CONSUMED})
        pause = next((each for each in self.pauses if each.covers(nominal)), None)
        if pause is None:
            return frozenset({Outcome.RAN if wanted else Outcome.EXCLUDED})
        held = {Outcome.PAUSED} if wanted else {Outcome.PAUSED, Outcome.EXCLUDED}
        if pause.catch_up is PausedFires.APPLY or pause.was_changed:
            held |= {Outcome.RAN, Outcome.COALESCED, Outcome.MISSED, Outcome.DROPPED} if wanted else set()
        return frozenset(held)

    @property
    def open_backfills(self) -> list[str]:
        """Those that go on, or whose end nobody has waited for."""
        return [backfill_id for backfill_id, each in self.backfills.items() if each.is_open]

    def backfill(
        self,
        backfill_id: str,
        fires: frozenset[datetime],
        existing: ExistingRuns,
        *,
        live: frozenset[datetime],
        undecided: frozenset[datetime],
        is_open: bool,
    ) -> None:
        """Run the fires of a range, or those that have no run.

        Of the job's own fires, ``live`` are those that have a run, and ``undecided`` those that may get one meanwhile.
        """
        run, doubtful = fires, frozenset[datetime]()
        if existing is ExistingRuns.SKIP:
            others = self.backfills.values()
            run -= live.union(*(each.run for each in others if not each.is_open))
            doubtful = run & undecided.union(*(each.run | each.doubtful for each in others if each.is_open))
        for other_id in self.open_backfills:
            self.backfills[other_id] = _beside(self.backfills[other_id], fires)
        self.backfills[backfill_id] = Backfilled(len(fires), existing, run - doubtful, doubtful, is_open)

    def close_backfills(self) -> None:
        """Let all be over."""
        self.backfills = {name: replace(each, is_open=False) for name, each in self.backfills.items()}

    def settle_backfill(self, backfill_id: str, run: frozenset[datetime]) -> None:
        """Know what one that is over has run."""
        self.backfills[backfill_id] = replace(self.backfills[backfill_id], run=run, doubtful=frozenset())

    def next_fire(self, now: datetime) -> datetime | None:
        """The first wanted fire that is to come."""
        if self.pause is not None:
            return None
        horizon = now + timedelta(seconds=10 * self.grid.seconds * (1 + len(self.consumed)))
        coming = (nominal for nominal, wanted in self.grid.fires(now, horizon) if wanted)
        return next(nominal for nominal in coming if nominal not in self.consumed)


def _beside(asked: Backfilled, fires: frozenset[datetime]) -> Backfilled:
    """Another backfill may run these fires first."""
    if asked.existing is ExistingRuns.RUN_AGAIN:
        return asked
    return replace(asked, run=asked.run - fires, doubtful=asked.doubtful | (asked.run & fires))


def told_fires(mirror: MemoryMirror, job_id: str, grids: Mapping[int, Grid], model: Model) -> dict[datetime, Outcome]:
    """Expand a job's runs and ledger to the outcome of each fire. A fire that is told twice raises."""
    told: dict[datetime, Outcome] = {}
    for run in mirror.runs.get(job_id, {}).values():
        if run.kind in (RunKind.SCHEDULED, RunKind.CATCH_UP):
            assert run.scheduled_at not in told, f"{run.scheduled_at} has two runs"
            told[run.scheduled_at] = run.outcome
    for entry in mirror.ledger.get(job_id, {}).values():
        grid, wants = grids[entry.revision], entry.outcome is not Outcome.EXCLUDED
        fires = [nominal for nominal, wanted in grid.fires(entry.first - TICK, entry.last) if wanted is wants]
        assert len(fires) == entry.count, entry
        end = model.end_of(entry.revision)
        for nominal in fires:
            if end is not None and nominal > end:
                # Told ahead, because a trigger used it up or what stands before that is excluded; a change took it back.
                continue
            assert nominal not in told, f"{nominal} is {told[nominal]} and {entry.outcome}"
            told[nominal] = entry.outcome
    return told


Sleep = Callable[[timedelta], Awaitable[None]]


@dataclass(frozen=True)
class Pace:
    """How time passes on a server, and what fits it."""

    grids: st.SearchStrategy[Grid]
    clear: timedelta
    """Nothing is done so shortly before a fire: what comes first would be the machine's business, not the model's."""

    patience: timedelta = LIMIT
    has_time: bool = True
    """Whether a test can wait until time has passed."""


SKIPPED = Pace(
    grids=st.builds(
        Grid,
        seconds=st.sampled_from([60, 900, 3_600]),
        excluded_minutes=st.sampled_from([frozenset[int](), frozenset({1, 2, 15, 45})]),
    ),
    clear=timedelta(seconds=5),
)

REAL = Pace(
    grids=st.builds(Grid, seconds=st.sampled_from([4, 6])),
    clear=timedelta(seconds=1.5),
    # What a worker takes along is asked for or run again after some time.
    patience=3 * LIMIT,
)

STANDING = replace(REAL, grids=st.builds(Grid, seconds=st.just(3_600)), has_time=False)


class Stage:
    """A server and workers, for all examples of a test."""

    def __init__(self, pace: Pace, opening: AbstractAsyncContextManager[tuple[Sleep, Harness]]) -> None:
        self.pace = pace
        self.sleep: Sleep
        self.harness: Harness
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._opening = opening

    def __enter__(self) -> "Stage":
        self.sleep, self.harness = self.run(self._stack.enter_async_context(self._opening))
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stack.aclose())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Do something while the workers work."""
        return self._runner.run(work)


@asynccontextmanager
async def in_skipped_time() -> AsyncIterator[tuple[Sleep, Harness]]:
    """On a server of its own whose clock jumps."""
    async with skipping_time() as (environment, harness):
        yield environment.sleep, harness


@asynccontextmanager
async def in_real_time(server: DevServer) -> AsyncIterator[tuple[Sleep, Harness]]:
    """On the real server."""
    async with running(await connect_to(server)) as harness:
        yield _sleep, harness


@asynccontextmanager
async def in_mortal_workers(server: DevServer) -> AsyncIterator[tuple[Sleep, Harness]]:
    """On the real server, with workers in a process of their own."""
    mirror = MemoryMirror()
    async with Zygote(server.options.address, mirror) as zygote:
        mortal = MortalHarness(await connect_to(server), Planner(QUICK), mirror=mirror, zygote=zygote)
        async with working(mortal) as harness:
            yield _sleep, harness


async def _sleep(span: timedelta) -> None:
    await asyncio.sleep(span.total_seconds())


class JobMachine(RuleBasedStateMachine):
    """One job and its model."""

    stage: ClassVar[Stage]

    job_id: str
    model: Model
    definition: JobDefinition
    grids: dict[int, Grid]
    triggered: list[str]
    is_sound: bool
    """Whether all that was done so far came to what the model says."""

    fields: ClassVar[Mapping[str, Any]] = {}
    """Of the job's definition, that make no difference to the model."""

    @initialize(grid=GRIDS, missed=st.sampled_from([CatchUpPolicy.RUN_ONCE, CatchUpPolicy.SKIP, CatchUpPolicy.RUN_ALL]))
    def register(self, grid: Grid, missed: CatchUpPolicy) -> None:
        """Register the job."""
        self.triggered = []
        common = {"overlap": "allow", "max_concurrent": 10, **self.fields}
        self.definition = job(schedule=_schedule(grid), missed_window=missed, **common)
        self._do(self._register(grid))

    async def _register(self, grid: Grid) -> None:
        now = await self._clear_of_fires(grid)
        self.job_id = await self.harness.register(self.definition, registered_at=now)
        self.model, self.grids = Model([Era(now, 1, grid)]), {1: grid}

    @precondition(lambda self: self.stage.pace.has_time)
    @rule(periods=PERIODS)
    def let_time_pass(self, periods: float) -> None:
        """With workers."""
        self._do(self._let_time_pass(timedelta(seconds=periods * self.model.grid.seconds)))

    async def _let_time_pass(self, span: timedelta) -> None:
        await self.stage.sleep(span)

    @rule(grid=GRIDS)
    def change_schedule(self, grid: Grid) -> None:
        """To another one, or the same."""
        self._do(self._change(self.definition.model_copy(update={"schedule": _schedule(grid)}), grid))

    @rule(payload=st.integers(0, 2))
    def change_payload(self, payload: int) -> None:
        """No fire moves."""
        self._do(self._change(self.definition.model_copy(update={"payload": payload}), self.model.grid))

    async def _change(self, definition: JobDefinition, grid: Grid) -> None:
        now = await self._clear_of_fires()
        record = await self.harness.change(self.job_id, definition)
        self.definition, self.grids[record.revision] = definition, grid
        at = max(now, record.updated_at)
        self.model.pass_time(at)
        self.model.change(grid, revision=record.revision, at=at)
        await self._check_next(record, since=at)

    @precondition(lambda self: self.model.pause is None)
    @rule(periods=st.none() | PERIODS, catch_up=st.sampled_from(PausedFires))
    def pause(self, periods: float | None, catch_up: PausedFires) -> None:
        """For a while, or until somebody resumes it."""
        self._do(self._pause(periods, catch_up))

    async def _pause(self, periods: float | None, catch_up: PausedFires) -> None:
        now = await self._clear_of_fires()
        if self.model.pause is not None:
            return
        until = None if periods is None else now + timedelta(seconds=periods * self.model.grid.seconds)
        record = await self.harness.pause(self.job_id, until=until, catch_up=catch_up)
        assert (record.lifecycle, record.next_run_at) == (Lifecycle.PAUSED, None)
        self.model.pauses.append(PauseSpan(record.updated_at, until, catch_up))

    @precondition(lambda self: self.model.pause is not None)
    @rule(catch_up=st.sampled_from(PausedFires))
    def resume(self, catch_up: PausedFires) -> None:
        """What fell into the pause is told, and runs only if that was asked for."""
        self._do(self._resume(catch_up))

    async def _resume(self, catch_up: PausedFires) -> None:
        await self._clear_of_fires()
        if self.model.pause is None:
            return
        record = await self.harness.resume(self.job_id, catch_up=catch_up)
        self.model.end_pause(at=record.updated_at, catch_up=catch_up)
        assert record.lifecycle is Lifecycle.ACTIVE
        await self._check_next(record, since=record.updated_at)

    @rule(skip_next=st.booleans())
    def trigger(self, skip_next: bool) -> None:
        """Now, or in the place of the next fire."""
        self._do(self._trigger(skip_next=skip_next))

    async def _trigger(self, *, skip_next: bool) -> None:
        now = await self._clear_of_fires()
        coming = self.model.next_fire(now)
        answer = await self.harness.trigger(self.job_id, skip_next=skip_next and coming is not None)
        self.triggered.append(answer.triggered.run_id)
        if skip_next and coming is not None:
            consumed, latest = answer.triggered.consumed, self.model.next_fire(await self.harness.now())
            assert consumed is not None
            assert latest is not None
            assert coming <= consumed <= latest
            self.model.consumed.add(consumed)

    async def _check_next(self, record: JobRecord, *, since: datetime) -> None:
        """See that a job that was changed says which fire comes next. Between two of them only where its answer took so long."""
        earliest, latest = (self.model.next_fire(moment) for moment in (since, await self.harness.now()))
        assert (record.next_run_at is None) == (earliest is None)
        if record.next_run_at is not None and earliest is not None and latest is not None:
            assert earliest <= record.next_run_at <= latest

    def teardown(self) -> None:
        """Delete the job. One that is terminated in the midst of something would keep the server from skipping time."""
        if hasattr(self, "job_id"):
            self.stage.run(self._end())

    async def _end(self) -> None:
        await self.harness.delete(self.job_id)
        await self.harness.handle(self.job_id).result()

    @property
    def harness(self) -> Harness:
        """That of all examples."""
        return self.stage.harness

    def _do(self, step: Coroutine[Any, Any, Any]) -> None:
        self.stage.run(self._carry_out(step))

    async def _carry_out(self, step: Coroutine[Any, Any, Any]) -> None:
        """Take a step, and wait until the mirror is what the model says."""
        self.is_sound = False
        await step
        await self._until_as_modelled()
        self.is_sound = True

    async def _until_as_modelled(self) -> None:
        await eventually(self._is_as_modelled, limit=self.stage.pace.patience)

    async def _is_as_modelled(self) -> bool:
        now = await self.harness.now()
        self.model.pass_time(now)
        record = self.harness.mirror.jobs.get(self.job_id)
        assert record is not None, "it has said nothing yet"
        told = told_fires(self.harness.mirror, self.job_id, self.grids, self.model)
        fires = dict(self.model.fires(now))
        due = {nominal for nominal, wanted in fires.items() if wanted and self.model.is_due(nominal)}
        assert due <= told.keys(), f"untold: {sorted(due - told.keys())}"
        known = fires | {nominal: nominal in self.model.consumed for nominal in self.model.told_ahead(now)}
        assert told.keys() <= known.keys(), f"no fires: {sorted(told.keys() - known.keys())}"
        for nominal, outcome in told.items():
            allowed = self.model.allowed(nominal, wanted=known[nominal])
            assert outcome in allowed, f"{nominal} is {outcome}, and not {', '.join(allowed)}"
        is_paused = self.model.pause is not None
        assert record.lifecycle is (Lifecycle.PAUSED if is_paused else Lifecycle.ACTIVE)
        assert record.next_run_at == self.model.next_fire(now)
        runs = self.harness.mirror.runs.get(self.job_id, {}).values()
        assert set(self.triggered) == {run.run_id for run in runs if run.kind is RunKind.MANUAL}
        self._check_backfills([run for run in runs if run.kind is RunKind.BACKFILL])
        under_way = self.model.open_backfills
        assert {run.status for run in runs if run.backfill_id not in under_way} <= {RunStatus.SUCCESS}
        assert len({run.fence for run in runs}) == len(runs)
        assert self.harness.mirror.conflicts == []
        return True

    def _check_backfills(self, runs: list[Run]) -> None:
        assert {run.backfill_id for run in runs} <= self.model.backfills.keys()
        skipping = [name for name, asked in self.model.backfills.items() if asked.existing is ExistingRuns.SKIP]
        by_skipping = Counter(run.scheduled_at for run in runs if run.backfill_id in skipping)
        assert max(by_skipping.values(), default=1) == 1, by_skipping
        for backfill_id, asked in self.model.backfills.items():
            own = Counter(run.scheduled_at for run in runs if run.backfill_id == backfill_id)
            assert max(own.values(), default=1) == 1, own
            assert own.keys() <= asked.run | asked.doubtful
            record = self.harness.mirror.backfills.get(backfill_id)
            assert record is not None or asked.is_open or not asked.total, f"nothing is told of {backfill_id} yet"
            if record is not None and asked.total:
                self._check_progress(record, asked, begun=len(own))
            if not asked.is_open:
                assert asked.run <= own.keys()
                passed_over = asked.doubtful - own.keys()
                assert passed_over <= self._run_otherwise(backfill_id), "passed over, and never run"

    def _check_progress(self, record: BackfillRecord, asked: Backfilled, *, begun: int) -> None:
        counts = (record.total, record.dead, record.cancelled)
        assert counts == (asked.total, 0, 0)
        assert record.succeeded <= begun
        assert record.skipped <= asked.total - len(asked.run)
        if asked.is_open:
            assert record.status in (BackfillStatus.RUNNING, BackfillStatus.DONE)
        else:
            assert record.status is BackfillStatus.DONE
            assert (record.succeeded, record.skipped) == (begun, asked.total - begun)

    def _run_otherwise(self, backfill_id: str) -> set[datetime]:
        """List the nominal times that have a run which is not of this backfill."""
        runs = self.harness.mirror.runs.get(self.job_id, {}).values()
        return {run.scheduled_at for run in runs if run.kind is not RunKind.MANUAL and run.backfill_id != backfill_id}

    async def _clear_of_fires(self, grid: Grid | None = None) -> datetime:
        """Wait until neither a fire nor the end of a pause comes in the next moments."""
        while True:
            now = await self.harness.now()
            if grid is None:
                self.model.pass_time(now)
            pause = None if grid is not None else self.model.pause
            ahead = [nominal for nominal, _ in (grid or self.model.grid).fires(now, now + self.stage.pace.clear)]
            if not ahead and (pause is None or pause.until is None or pause.until > now + self.stage.pace.clear):
                return now
            await self.stage.sleep(2 * self.stage.pace.clear)


class RestartedMachine(JobMachine):
    """The same with backfills, and with workers that are restarted, which know nothing then but what they replay.

    A backfill is waited for at once, or goes on while other things are done: at two fires a second.
    """

    @rule(ago=st.integers(0, 5), length=st.integers(0, 2), existing=st.sampled_from(ExistingRuns))
    def backfill(self, ago: int, length: int, existing: ExistingRuns) -> None:
        """Of some periods, that fired or did not, or were before the job; paused or not."""
        self._do(self._backfill(ago, length, existing))

    @precondition(lambda self: len(self.model.open_backfills) < 2)
    @rule(ago=st.integers(0, 5), length=st.integers(1, 3), existing=st.sampled_from(ExistingRuns))
    def begin_backfill(self, ago: int, length: int, existing: ExistingRuns) -> None:
        """One that goes on while other things are done, another backfill of the same fires perhaps among them."""
        self._do(self._backfill(ago, length, existing, is_open=True))

    @precondition(lambda self: self.model.open_backfills)
    @rule()
    def wait_for_backfills(self) -> None:
        """Whatever was done meanwhile, they are what they were asked for."""
        self._do(self._wait_for_backfills())

    async def _wait_for_backfills(self) -> None:
        waited_for = self.model.open_backfills
        self.model.close_backfills()
        await self._until_as_modelled()
        runs = self.harness.mirror.runs.get(self.job_id, {}).values()
        for backfill_id in waited_for:
            own = frozenset(run.scheduled_at for run in runs if run.backfill_id == backfill_id)
            self.model.settle_backfill(backfill_id, own)

    async def _end(self) -> None:
        if self.is_sound:
            await self._wait_for_backfills()
        await super()._end()

    async def _backfill(self, ago: int, length: int, existing: ExistingRuns, *, is_open: bool = False) -> None:
        now = await self._clear_of_fires()
        await self._until_as_modelled()
        period = timedelta(seconds=self.model.grid.seconds)
        end = now - ago * period
        start = end - length * period
        fires = frozenset(nominal for nominal, wanted in self.model.grid.fires(start - TICK, end) if wanted)
        told = told_fires(self.harness.mirror, self.job_id, self.grids, self.model)
        live = frozenset(nominal for nominal, outcome in told.items() if outcome is Outcome.RAN)
        may_end_meanwhile = is_open or (self.model.pause is not None and self.model.pause.until is not None)
        kept = {nominal for nominal, _ in self.model.fires(now)} - told.keys() if may_end_meanwhile else ()
        pace = {"max_concurrent": 1, "rate_per_minute": 120} if is_open else {"max_concurrent": 2}
        asked = await self.harness.backfill(self.job_id, start=start, end=end, existing=existing, **pace)
        self.model.backfill(asked.backfill_id, fires, existing, live=live, undecided=frozenset(kept), is_open=is_open)

    @rule()
    def restart_workers(self) -> None:
        """While nothing is under way."""
        self._do(self._restart())

    @rule(skip_next=st.booleans())
    def restart_workers_amid_a_trigger(self, skip_next: bool) -> None:
        """The old ones have it, or the new ones."""
        self._do(self._restart_amid(self._trigger(skip_next=skip_next)))

    @precondition(lambda self: self.stage.pace.has_time)
    @rule(ago=st.integers(0, 5), length=st.integers(0, 2), existing=st.sampled_from(ExistingRuns))
    def restart_workers_amid_a_backfill(self, ago: int, length: int, existing: ExistingRuns) -> None:
        """Which has perhaps begun a run, or asks the job for one: it asks again then, ten seconds later."""
        self._do(self._restart_amid(self._backfill(ago, length, existing)))

    async def _restart_amid(self, step: Coroutine[Any, Any, None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(step)
            group.create_task(self._restart())

    async def _restart(self) -> None:
        await self.harness.stop_workers()
        await self.harness.start_workers()


@seed(5)
class VariedMachine(RestartedMachine):
    """The same. The first four sequences of six steps of this number have much of what there is: backfills beside each other,
    changes while they go on, and workers that are restarted amid a trigger."""


class Amid(StrEnum):
    """What goes on while the workers are killed."""

    NOTHING = "nothing"
    FIRE = "fire"
    """One is due in the next moment."""

    CHANGE = "change"
    TRIGGER = "trigger"
    PAUSE = "pause"
    """Or the resume of a job that is paused."""

    BACKFILL = "backfill"


class KilledMachine(RestartedMachine):
    """The same, and the workers die abruptly.

    They are a process of their own, with everything that a worker process has but SQL: the mirror is this process's, and asked
    through a socket. The process is killed with SIGKILL at some moment of whatever it does: a workflow task that it has and whose
    commands nobody has seen, an update that it has taken and not answered, an attempt or a record that it has begun. Nobody
    is told. What it held is found out by time-outs: of the task (2 s), of its sticky queue (3 s), of heartbeats. Another process
    begins at once, and knows nothing but what it replays. All that restarts workers in the other machine kills them in this one.
    """

    fields = {"heartbeat_timeout": timedelta(seconds=2), "retry": RetryPolicy(max_attempts=20)}

    @rule(amid=st.sampled_from(Amid), after=MOMENTS, grid=GRIDS)
    def kill_workers(self, amid: Amid, after: float, grid: Grid) -> None:
        """Some moments after something has begun. Nothing is lost of what was answered, and nothing is done twice."""
        self._do(self._kill_amid(amid, after, grid))

    async def _kill_amid(self, amid: Amid, after: float, grid: Grid) -> None:
        await self._clear_of_fires()
        if amid is Amid.FIRE:
            await self._until_just_before_a_fire()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._step(amid, grid))
            group.create_task(self._kill(timedelta(seconds=after)))

    async def _kill(self, after: timedelta) -> None:
        await self.stage.sleep(after)
        await self._restart()

    async def _restart(self) -> None:
        """By death, whoever asks for it."""
        assert isinstance(self.harness, MortalHarness)
        await self.harness.kill_workers()
        await self.harness.start_workers()

    async def _step(self, amid: Amid, grid: Grid) -> None:
        pause = self.model.pause
        match amid:
            case Amid.CHANGE:
                await self._change(self.definition.model_copy(update={"schedule": _schedule(grid)}), grid)
            case Amid.TRIGGER:
                await self._trigger(skip_next=True)
            case Amid.PAUSE if pause is None:
                await self._pause(None, PausedFires.NONE)
            case Amid.PAUSE if pause is not None and pause.until is None:
                await self._resume(PausedFires.APPLY)
            case Amid.BACKFILL if len(self.model.open_backfills) < 2:
                await self._backfill(1, 2, ExistingRuns.SKIP, is_open=True)

    async def _until_just_before_a_fire(self) -> None:
        now = await self.harness.now()
        fire = self.model.next_fire(now)
        if self.stage.pace.has_time and fire is not None:
            await self.stage.sleep(fire - JUST_BEFORE - now)


def _schedule(grid: Grid) -> Any:
    minutes = ",".join(map(str, sorted(grid.excluded_minutes))) or None
    return grid_schedule(grid.seconds, not_in_minutes=minutes)


def _lead(machine: type[JobMachine], stage: Stage, *, examples: int, steps: int, derandomize: bool = not LONG) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=derandomize,
        database=None,
        # Not made shorter: each sequence takes seconds, and what it was led through is printed.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with stage:
        machine.stage = stage
        run_state_machine_as_test(machine, settings=chosen)


def test_whatever_is_done_to_a_job_every_fire_has_its_outcome() -> None:
    """A handful of sequences, the same each time."""
    _lead(JobMachine, Stage(SKIPPED, in_skipped_time()), examples=4, steps=7, derandomize=True)


def test_whatever_is_done_to_a_job_between_restarts_of_its_workers(temporal_server: DevServer) -> None:
    """A handful of sequences, the same each time. No time passes in them."""
    _lead(VariedMachine, Stage(STANDING, in_real_time(temporal_server)), examples=4, steps=6)


def test_whatever_is_done_to_a_job_whose_workers_are_killed(temporal_server: DevServer) -> None:
    """One sequence in which workers die amid a trigger, and a backfill goes on while other things are done."""
    with Stage(STANDING, in_mortal_workers(temporal_server)) as stage:
        KilledMachine.stage = stage
        machine = KilledMachine()
        machine.register(grid=Grid(3_600), missed=CatchUpPolicy.RUN_ONCE)
        machine.kill_workers(amid=Amid.TRIGGER, after=0.03, grid=Grid(3_600))
        machine.begin_backfill(ago=0, length=2, existing=ExistingRuns.SKIP)
        machine.change_payload(payload=1)
        machine.pause(periods=None, catch_up=PausedFires.NONE)
        machine.trigger(skip_next=False)
        machine.wait_for_backfills()
        machine.teardown()


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_whatever_is_done_to_a_job_for_long() -> None:
    """Many sequences, others each time where that is asked for."""
    _lead(JobMachine, Stage(SKIPPED, in_skipped_time()), examples=400 if LONG else 60, steps=15)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_whatever_is_done_to_a_job_between_restarts_for_long(temporal_server: DevServer) -> None:
    """In real time, of which much passes."""
    _lead(RestartedMachine, Stage(REAL, in_real_time(temporal_server)), examples=40 if LONG else 6, steps=12)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_whatever_is_done_to_a_job_whose_workers_are_killed_for_long(temporal_server: DevServer) -> None:
    """In real time, of which much passes."""
    stage = Stage(replace(REAL, patience=5 * LIMIT), in_mortal_workers(temporal_server))
    _lead(KilledMachine, stage, examples=40 if LONG else 6, steps=12)
