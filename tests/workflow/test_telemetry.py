"""What real workflows tell: once, through replays, evicted caches and new runs, and without a trace in their histories."""

from collections import Counter
from datetime import timedelta

from opentelemetry.trace import SpanContext
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.eventually import eventually
from tests.workflow.harness import QUICK, every, job, running
from workers.news import NewsInterceptor
from workers.settings import Settings
from workers.workflow_runner import strict_runner
from workflows.job import Lifecycle
from workflows.job_news import JobNews
from workflows.job_workflow import JobWorkflow
from workflows.run import AttemptStatus, Outcome, RunStatus
from workflows.run_workflow import RunWorkflow

COLD = Settings(
    max_cached_workflows=10,
    workflow_task_slots=10,
    local_activity_slots=20,
    job_slots=50,
    graceful_shutdown=timedelta(0),
)
"""A cache for some of the jobs: decisions begin with a replay."""

SHORT = QUICK.model_copy(update={"history_limit": 60})
"""New runs every few fires."""


class Ear:
    """Counts what it hears."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        """Those that are listened to. On a server that tests share, workers hear of what others have left as well."""

        self.fires = Counter[Outcome]()
        self.ended = Counter[RunStatus]()
        self.attempts = Counter[AttemptStatus]()
        self.heard = 0

    def hear(self, news: JobNews, _: SpanContext) -> None:
        """Count."""
        if news.job_id not in self.jobs:
            return
        self.heard += 1
        for entry in news.ledger:
            self.fires[entry.outcome] += entry.count
        for told in news.runs:
            self.fires[told.run.outcome] += told.settled
            self.ended[told.run.status] += told.ended
            if told.attempt is not None:
                self.attempts[told.attempt.status] += 1


async def test_everything_is_told_once_however_often_decisions_are_replayed(temporal_client: Client) -> None:
    """Twelve jobs in a cache of ten; some fail, retry, overlap or run apart. The counts are those of the mirror."""
    ear = Ear()
    async with running(
        temporal_client, tuning=SHORT, settings=COLD, interceptors=[NewsInterceptor([ear.hear])]
    ) as harness:
        ear.jobs = harness.jobs
        for _ in range(3):
            await harness.register(job("noop", schedule=every(2, max_runs=3)))
            await harness.register(job("take", schedule=every(1, max_runs=3), payload=1.5, overlap="skip"))
            await harness.register(job("fail", schedule=every(4, max_runs=2), payload=1, retry={"base": 0.1}))
            await harness.register(job("take", schedule=every(3, max_runs=2), payload=0.2, isolation="workflow"))
        for job_id in harness.jobs:
            await harness.until_closed(job_id, Lifecycle.COMPLETED, limit=60)

        def agrees() -> bool:
            mirror, jobs = harness.mirror, harness.jobs
            runs = [run for job_id in jobs for run in mirror.runs[job_id].values()]
            entries = [entry for job_id in jobs for entry in mirror.ledger.get(job_id, {}).values()]
            fires = Counter(run.outcome for run in runs)
            for entry in entries:
                fires[entry.outcome] += entry.count
            unfinished = [run for run in runs if run.finished_at is None]
            assert not unfinished, unfinished
            assert ear.fires.total() == fires.total()
            # A task that was lost may have told of a fire what then became otherwise.
            assert (ear.fires - fires).total() <= 3
            assert +ear.ended == Counter(run.status for run in runs)
            assert ear.attempts.total() == sum(len(mirror.attempts[job_id]) for job_id in jobs)
            return True

        await eventually(agrees, limit=timedelta(seconds=30))
    assert ear.ended == Counter({RunStatus.SUCCESS: 30})
    assert ear.fires[Outcome.SKIPPED] >= 3


async def test_a_replay_tells_nothing_and_finds_nothing_changed(temporal_client: Client) -> None:
    """Histories made with telemetry replay without it, those made without it replay with it, and neither is heard."""
    ear = Ear()
    histories = []
    for interceptors in ([NewsInterceptor([ear.hear])], []):
        async with running(temporal_client, tuning=SHORT, interceptors=interceptors) as harness:
            job_id = await harness.register(
                job("fail", every_seconds=2, payload=1, retry={"max_attempts": 2, "base": 0.1})
            )
            ear.jobs.append(job_id)
            await harness.until_runs(job_id, 2)
            histories += await harness.histories(job_id)
    heard = ear.heard
    assert heard
    for interceptors in ([NewsInterceptor([ear.hear])], []):
        replayer = Replayer(
            workflows=[JobWorkflow, RunWorkflow],
            workflow_runner=strict_runner(),
            data_converter=pydantic_data_converter,
            interceptors=interceptors,
        )
        for history in histories:
            await replayer.replay_workflow(history)
    assert ear.heard == heard
