"""The long sleep: no history, no cache slot, on time, and woken at once by a command."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import (
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from activities.job_control import JobControl
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import (
    SLEEPY,
    Harness,
    count_kind,
    every,
    is_gapless,
    is_long_sleep,
    job,
    kinds_of,
    lateness,
    refusal_of,
    running,
    skipping_time,
)
from workers.connection import register_search_attributes
from workers.settings import Settings
from workflows.command import ShowCommand
from workflows.contracts import (
    JOB_WORKFLOW,
    SA_LAST_OUTCOME,
    SA_NEXT_FIRE,
    SA_STATE,
    WORKFLOW_TASK_TIMEOUT,
    job_workflow_id,
)
from workflows.job import JobInput, Lifecycle
from workflows.linger import CROWDED
from workflows.wake import LEAST_AHEAD


async def until_asleep(harness: Harness, job_id: str, *, sleeps: int = 1) -> None:
    """Wait until a job sleeps the long way for the given time."""

    async def is_asleep() -> bool:
        histories = await harness.histories(job_id)
        last = histories[-1]
        return sum(map(is_long_sleep, histories)) == sleeps and is_long_sleep(last) and len(last.events) == 1

    await eventually(is_asleep)


async def test_a_long_gap_is_slept_without_a_history(temporal_client: Client) -> None:
    """Each fire is a run of its own that begins with a backoff; a sleeping job has one event; nothing is late or lost."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(every_seconds=3))
        runs = await harness.until_runs(job_id, 3)
        assert is_gapless([run.scheduled_at for run in runs], timedelta(seconds=3))
        assert max(map(lateness, runs)) < timedelta(seconds=3)
        histories = await harness.histories(job_id)
        assert [is_long_sleep(history) for history in histories[1:4]] == [True, True, True]
        assert all(kinds_of(history)[-1] == "workflow_execution_continued_as_new" for history in histories[:3])
        assert count_kind(histories[1:4], "timer_fired") == 0
        assert max(len(history.events) for history in histories) < 30
        # The state crossed with each: fences rise, counts go on.
        assert harness.mirror.jobs[job_id].counts.succeeded >= 3
        assert len({run.workflow_run_id for run in runs}) == len(runs)


async def test_a_job_without_jitter_is_woken_ahead_of_its_fire(temporal_client: Client) -> None:
    """One of many that are due at one instant is ready by then, and sleeps the rest on a timer."""
    ahead = timedelta(seconds=4)
    async with running(temporal_client, tuning=SLEEPY.model_copy(update={"wake_ahead": ahead})) as harness:
        job_id = await harness.register(job(every_seconds=7))
        runs = await harness.until_runs(job_id, 3)
        assert is_gapless([run.scheduled_at for run in runs], timedelta(seconds=7))
        assert max(map(lateness, runs)) < timedelta(seconds=1)
        woken = [each for each in await harness.histories(job_id) if each.run_id == runs[1].workflow_run_id]
        assert list(map(is_long_sleep, woken)) == [True]
        assert count_kind(woken, "timer_fired") == 1
        assert count_kind(woken, "activity_task_completed") == 1
        begins = woken[0].events[0]
        backoff = begins.workflow_execution_started_event_attributes.first_workflow_task_backoff.ToTimedelta()
        early = runs[1].scheduled_at - (begins.event_time.ToDatetime(tzinfo=UTC) + backoff)
        assert ahead * LEAST_AHEAD <= early <= ahead


async def test_a_job_that_fires_late_stays_awake_until_the_crowd_is_through(temporal_client: Client) -> None:
    """Others are late as well, and come first; it fires again in the meantime, and then sleeps the long way again."""
    tuning = SLEEPY.model_copy(update={"wake_ahead": timedelta(seconds=4)})
    async with running(temporal_client, tuning=tuning) as harness:
        job_id = await harness.register(job(every_seconds=7))
        await harness.until_runs(job_id, 1)
        await until_asleep(harness, job_id, sleeps=2)
        await harness.stop_workers()
        due = harness.mirror.jobs[job_id].next_run_at
        assert due is not None
        await asyncio.sleep((due - datetime.now(UTC) + 2 * CROWDED).total_seconds())
        await harness.start_workers()
        runs = await harness.until_runs(job_id, 3)
        late = next(run for run in runs if run.scheduled_at == due)
        awake = [each for each in await harness.histories(job_id) if each.run_id == late.workflow_run_id]
        assert list(map(is_long_sleep, awake)) == [True]

        def fires_of_that_run() -> list[bool]:
            every_run = [*harness.mirror.runs[job_id].values()]
            return [
                run.workflow_run_id == late.workflow_run_id for run in every_run if run.scheduled_at > late.scheduled_at
            ]

        await eventually(lambda: not all(fires_of_that_run()), limit=timedelta(seconds=90))
        assert fires_of_that_run()[0]


async def test_operators_see_a_sleeping_job(temporal_client: Client) -> None:
    """Next fire, state and last outcome as search attributes; name, schedule and zone in the memo."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(every_seconds=3, owner="billing"))
        [first, *_] = await harness.until_runs(job_id, 1)
        await until_asleep(harness, job_id, sleeps=2)
        described = await harness.handle(job_id).describe()
        shown = described.typed_search_attributes
        next_fire = shown.get(SA_NEXT_FIRE)
        assert next_fire is not None
        assert next_fire > first.scheduled_at
        assert (next_fire - first.scheduled_at) % timedelta(seconds=3) == timedelta(0)
        assert (shown.get(SA_STATE), shown.get(SA_LAST_OUTCOME)) == ("active", "success")
        memo = await described.memo()
        assert memo["schedule"] == "@every 3s"
        assert (memo["name"], memo["timezone"], memo["owner"]) == ("noop", "UTC", "billing")


async def test_a_command_wakes_a_sleeping_job_at_once(temporal_client: Client) -> None:
    """Deleted in the middle of a sleep of days, it answers, is recorded and ends."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(every_seconds=86_400 * 30))
        await until_asleep(harness, job_id)
        record = await asyncio.wait_for(harness.delete(job_id), 10)
        assert record.lifecycle is Lifecycle.DELETED
        await harness.until_closed(job_id, Lifecycle.DELETED)
        assert harness.code.of(job_id) == []


async def test_a_job_that_is_told_many_things_at_once_stays_awake_for_them(temporal_client: Client) -> None:
    """Each of the triggers would else meet a run that has just ended, and come again later; then it goes back to sleep."""
    many = 30
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(every_seconds=86_400, overlap="allow", max_concurrent=many))
        await until_asleep(harness, job_id)
        free = asyncio.Semaphore(5)

        async def trigger() -> str:
            async with free:
                return (await harness.trigger(job_id)).triggered.run_id

        told = await asyncio.gather(*(trigger() for _ in range(many)))
        assert len({*told}) == many
        assert {run.run_id for run in await harness.until_runs(job_id, many)} == {*told}
        # Three or four, as a history of some hundred events needs.
        awake = [history for history in await harness.histories(job_id) if len(history.events) > 1]
        assert len(awake) <= many / 5
        await until_asleep(harness, job_id, sleeps=len(awake))


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(minutes=1)])
async def test_a_job_woken_early_goes_back_to_sleep_until_the_same_time(
    temporal_client: Client, ahead: timedelta
) -> None:
    """A refused command changes nothing: no fire, and the next run begins where the first sleep was to end."""
    async with running(temporal_client, tuning=SLEEPY.model_copy(update={"wake_ahead": ahead})) as harness:
        job_id = await harness.register(job(every_seconds=86_400))
        await until_asleep(harness, job_id)
        assert await refusal_of(harness.register_again(job(), job_id=job_id)) == "Conflict"
        await until_asleep(harness, job_id, sleeps=2)
        first, second = (history for history in await harness.histories(job_id) if is_long_sleep(history))
        started = [history.events[0] for history in (first, second)]
        wakes = [
            event.event_time.ToDatetime(tzinfo=UTC)
            + event.workflow_execution_started_event_attributes.first_workflow_task_backoff.ToTimedelta()
            for event in started
        ]
        assert abs(wakes[0] - wakes[1]) < timedelta(seconds=1)
        next_run_at = harness.mirror.jobs[job_id].next_run_at
        assert next_run_at is not None
        assert next_run_at - ahead <= wakes[0] < next_run_at - ahead * LEAST_AHEAD + timedelta(seconds=1)


async def test_a_job_that_was_to_sleep_until_its_fire_does_so_when_others_are_woken_ahead(
    temporal_client: Client,
) -> None:
    """An earlier release has put it to sleep; woken early, it is not held awake until the fire, which may be weeks away."""
    async with running(
        temporal_client, tuning=SLEEPY.model_copy(update={"wake_ahead": timedelta(minutes=1)})
    ) as harness:
        job_id = unique("job")
        harness.jobs.append(job_id)
        state = await harness.state(job(every_seconds=86_400), job_id=job_id)
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        fire = today + timedelta(days=1)
        await harness.start(JobInput(state=state, sleep_until=fire))
        await eventually(lambda: job_id in harness.mirror.jobs)
        await until_asleep(harness, job_id)


async def test_a_job_woken_early_sleeps_on_a_timer_until_an_earlier_time(temporal_client: Client) -> None:
    """Some servers hold a run to the target it was first given; a timer is never held."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = unique("job")
        harness.jobs.append(job_id)
        state = await harness.state(job(every_seconds=4), job_id=job_id)
        await temporal_client.start_workflow(
            JOB_WORKFLOW,
            JobInput(state=state, sleep_until=datetime.now(UTC) + timedelta(hours=1)),
            id=job_workflow_id(tenant="default", job_id=job_id),
            task_queue="horarium",
            task_timeout=WORKFLOW_TASK_TIMEOUT,
        )
        await harness.until_runs(job_id, 2)
        [history] = await harness.histories(job_id)
        # The first fire may be due when the first task is, and needs none.
        assert kinds_of(history).count("timer_fired") >= 1


async def test_a_sleeping_job_that_is_cancelled_in_temporal_ends_as_deleted(temporal_client: Client) -> None:
    """Whoever presses cancel in the Web UI has deleted the job, and the mirror says so, at the latest at its next fire."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job("take", every_seconds=4, payload=60))
        await until_asleep(harness, job_id)
        await harness.handle(job_id).cancel()
        record = await harness.until_closed(job_id, Lifecycle.DELETED)
        assert record.active_runs == 0
        described = await harness.handle(job_id).describe()
        assert described.status is WorkflowExecutionStatus.COMPLETED


async def test_a_job_with_a_run_under_way_sleeps_on_a_timer(temporal_client: Client) -> None:
    """Continuing as new would be fine for a detached run, but its report must find a job that is awake."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(
            job("take", payload=6, isolation="workflow", schedule=every(4), overlap="buffer_one")
        )
        await harness.until_runs(job_id, 1)
        histories = await harness.histories(job_id)
        starts = [kinds_of(history).count("start_child_workflow_execution_initiated") for history in histories]
        fired = next(index for index, count in enumerate(starts) if count)
        assert "timer_started" in kinds_of(histories[fired])


async def test_the_task_that_dispatches_the_fire_of_a_day_waits_for_nobody() -> None:
    """The planner is asked again each day, for the zone may have changed, and the mirror told, when the run has ended."""
    daily = {
        "rule": {"kind": "cron", "expression": "30 9 * * *"},
        "timezone": "America/New_York",
        "jitter_window_seconds": 0,
        "max_runs": 3,
    }
    async with skipping_time() as (_, harness):
        job_id = await harness.register(job(schedule=daily))
        await harness.started[job_id].result()
        histories = await harness.histories(job_id)
    assert sum(map(is_long_sleep, histories)) == 3
    for history in histories:
        started = [each.activity_task_scheduled_event_attributes for each in history.events]
        markers = [each.marker_recorded_event_attributes for each in history.events]
        dispatched_by = {each.workflow_task_completed_event_id for each in started if each.activity_id}
        asked_by = {each.workflow_task_completed_event_id for each in markers if each.marker_name}
        assert len(dispatched_by) == is_long_sleep(history)
        assert asked_by
        assert not dispatched_by & asked_by


async def test_a_command_whose_task_the_server_refuses_is_given_again(temporal_client: Client) -> None:
    """The job would sleep again after it, but is told something else meanwhile: the server fails the task, and the update."""
    slow = _SlowUpdates()
    unsandboxed = Settings(
        local_activity_slots=20, job_slots=50, graceful_shutdown=timedelta(0), workflow_sandbox=False
    )
    async with running(temporal_client, tuning=SLEEPY, settings=unsandboxed, interceptors=[slow]) as harness:
        job_id = await harness.register(job(every_seconds=3600))
        await until_asleep(harness, job_id)
        control = JobControl(
            temporal_client, find_search_attributes=partial(register_search_attributes, temporal_client)
        )
        asked = asyncio.create_task(control.show(ShowCommand(), tenant="default", job_id=job_id))
        await asyncio.to_thread(slow.reached.wait, 60)
        await harness.handle(job_id).signal("other-news")
        slow.may_go.set()
        shown = await asked
        assert shown.job is not None
        assert shown.job.job_id == job_id
        assert slow.seen == 2
        refused = [
            event.workflow_task_failed_event_attributes.cause
            for history in await harness.histories(job_id)
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        ]
        assert refused == [WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND]


class _SlowUpdates(Interceptor):
    """Holds the first update of a workflow within its task, until told."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.may_go = threading.Event()
        self.seen = 0

    def workflow_interceptor_class(self, _: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Make those of the workflows of this worker, which do not know it."""
        outer = self

        class Slow(WorkflowInboundInterceptor):
            async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
                outer.seen += 1
                outer.reached.set()
                outer.may_go.wait(1)  # less than what counts as a deadlock
                return await super().handle_update_handler(input)

        return Slow
