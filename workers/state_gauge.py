"""Gauges that are read off the state of the whole installation: its mirror and its task queues.

Looked at when somebody looks at the metrics, within a bound, and not again for some seconds: a process whose metrics nobody
reads asks nothing. Every process that can answers alike, so the API still tells of a queue whose workers are dead. What cannot
be asked has no value at all, rather than an old one; ``horarium_source_up`` says why.
"""

import asyncio
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from temporalio.client import Client
from temporalio.service import RPCError

from activities.backlog import Backlog, QueueKind, read_backlog
from activities.mirror_survey import MirrorSurvey, MirrorSurveyor, TenantSurvey
from activities.mirror_writer import MirrorWriter
from activities.open_breaker import list_open_breakers
from workers.metric import TenantLabel
from workflows.contracts import RECORDS_WORKFLOW, SCHEDULER_TASK_QUEUE
from workflows.error import Unavailable
from workflows.target import DEFAULT_TASK_QUEUE

logger = logging.getLogger(__name__)

PATIENCE: Final = timedelta(seconds=3)
"""For the whole of a look. Prometheus waits ten seconds for all metrics."""

LASTS_AT_LEAST: Final = timedelta(seconds=5)
"""As long as the server itself remembers what it counted."""

LASTS_TIMES: Final = 20
"""A look is not repeated before this many times the time that it took: at most a twentieth of a connection is busy with it."""

AT_ONCE: Final = 10
"""Queues asked about at the same time."""

Reading: TypeAlias = tuple[tuple[str, ...], float]
"""Labels and value."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What was seen at one moment. ``None`` is what could not be asked."""

    taken_at: datetime
    mirror: MirrorSurvey | None = None
    backlogs: tuple[Backlog, ...] | None = None
    """Of the queues of jobs, and of our own two."""

    open_breakers: tuple[tuple[str, str], ...] | None = None
    """By tenant and downstream."""

    records_open: int | None = None
    """Workflows that carry records which the mirror did not take."""


class InstallationLook:
    """Looks at the mirror and at Temporal."""

    def __init__(self, *, surveyor: MirrorSurveyor, writer: MirrorWriter, client: Client) -> None:
        self._surveyor = surveyor
        self._writer = writer
        self._client = client
        self._task_queues: tuple[str, ...] = ()
        """As they were known last: queues do not go when the database does."""

    async def take(self) -> Snapshot:
        """Look. Never fails."""
        now = datetime.now(UTC)
        mirror, _ = await asyncio.gather(self._survey(now), self._writer.check())
        if mirror is not None:
            self._task_queues = mirror.task_queues
        backlogs, records_open, open_breakers = await asyncio.gather(
            self._read_backlogs(), self._count_records_workflows(), self._list_open_breakers()
        )
        return Snapshot(
            taken_at=now, mirror=mirror, backlogs=backlogs, records_open=records_open, open_breakers=open_breakers
        )

    async def _survey(self, now: datetime) -> MirrorSurvey | None:
        try:
            return await self._surveyor.survey(now=now)
        except Unavailable:
            return None

    async def _read_backlogs(self) -> tuple[Backlog, ...] | None:
        queues = dict.fromkeys((DEFAULT_TASK_QUEUE, SCHEDULER_TASK_QUEUE, *self._task_queues))
        wanted = [(DEFAULT_TASK_QUEUE, QueueKind.WORKFLOW), *((queue, QueueKind.ACTIVITY) for queue in queues)]
        free = asyncio.Semaphore(AT_ONCE)

        async def read(task_queue: str, kind: QueueKind) -> Backlog:
            async with free:
                return await read_backlog(self._client, task_queue=task_queue, kind=kind, limit=PATIENCE)

        try:
            return tuple(await asyncio.gather(*(read(*queue) for queue in wanted)))
        except (RPCError, RuntimeError):
            return None

    async def _count_records_workflows(self) -> int | None:
        query = f"WorkflowType = '{RECORDS_WORKFLOW}' AND ExecutionStatus = 'Running'"
        try:
            return (await self._client.count_workflows(query, rpc_timeout=PATIENCE)).count
        except (RPCError, RuntimeError):
            return None

    async def _list_open_breakers(self) -> tuple[tuple[str, str], ...] | None:
        try:
            return tuple(await list_open_breakers(self._client, limit=PATIENCE))
        except (RPCError, RuntimeError):
            return None


class LastingSnapshot:
    """The newest snapshot, taken again when somebody looks and it is old. Readers look from threads of their own."""

    def __init__(self, look: InstallationLook) -> None:
        """Make it in the event loop that ``look`` lives in."""
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._snapshot = Snapshot(taken_at=datetime.now(UTC))
        self._lasts_until = 0.0

    def close(self) -> None:
        """Look no more."""
        self._lasts_until = math.inf

    def get(self) -> Snapshot:
        """Get it, at most ``PATIENCE`` later."""
        if threading.get_ident() == self._loop_thread:
            return self._snapshot
        with self._lock:
            began = time.monotonic()
            if began >= self._lasts_until:
                self._snapshot = self._take()
                took = time.monotonic() - began
                self._lasts_until = began + max(LASTS_AT_LEAST.total_seconds(), LASTS_TIMES * took)
            return self._snapshot

    def _take(self) -> Snapshot:
        taking = self._look.take()
        try:
            return asyncio.run_coroutine_threadsafe(taking, self._loop).result(PATIENCE.total_seconds() + 1)
        except (TimeoutError, CancelledError):
            logger.warning("the state of the installation could not be looked at in time")
        except RuntimeError:  # the loop has ended
            taking.close()
        return Snapshot(taken_at=datetime.now(UTC))


@dataclass(frozen=True, kw_only=True)
class StateGauge:
    """One gauge, and how it is read off a snapshot."""

    name: str
    unit: str
    description: str
    read: Callable[[Snapshot], Iterable[Reading]]
    labels: tuple[str, ...] = ()
    """The first may be ``tenant``, and then is bounded; the values of tenants that share a label are added up."""


def show_state(meter: Meter, snapshot: LastingSnapshot) -> None:
    """Make the gauges."""
    tenants = TenantLabel()
    for gauge in STATE_GAUGES:
        observe = partial(_observe, gauge, snapshot, tenants)
        meter.create_observable_gauge(gauge.name, [observe], unit=gauge.unit, description=gauge.description)


def _observe(
    gauge: StateGauge, snapshot: LastingSnapshot, tenants: TenantLabel, _: CallbackOptions
) -> list[Observation]:
    values: dict[tuple[str, ...], float] = defaultdict(float)
    for labels, value in gauge.read(snapshot.get()):
        bounded = (tenants.of(labels[0]), *labels[1:]) if gauge.labels[:1] == ("tenant",) else labels
        values[bounded] += value
    return [Observation(value, dict(zip(gauge.labels, labels, strict=True))) for labels, value in values.items()]


def _read_sources(seen: Snapshot) -> Iterator[Reading]:
    yield ("database",), float(seen.mirror is not None)
    yield ("temporal",), float(seen.backlogs is not None)


def _read_jobs(seen: Snapshot) -> Iterator[Reading]:
    for tenant, survey in _tenants(seen):
        yield from (((tenant, state.value), float(count)) for state, count in survey.jobs.items())


def _read_lag(seen: Snapshot) -> Iterator[Reading]:
    if seen.mirror is not None:
        since = min((survey.due_since for _, survey in _tenants(seen) if survey.due_since is not None), default=None)
        yield (), 0.0 if since is None else max(0.0, (seen.taken_at - since).total_seconds())


def _read_records_open(seen: Snapshot) -> Iterator[Reading]:
    if seen.records_open is not None:
        yield (), float(seen.records_open)


def _read_open_breakers(seen: Snapshot) -> Iterator[Reading]:
    yield from ((breaker, 1.0) for breaker in seen.open_breakers or ())


def _of_tenants(count: Callable[[TenantSurvey], int]) -> Callable[[Snapshot], Iterator[Reading]]:
    return lambda seen: (((tenant,), float(count(survey))) for tenant, survey in _tenants(seen))


def _of_queues(measure: Callable[[Backlog], float]) -> Callable[[Snapshot], Iterator[Reading]]:
    return lambda seen: (((each.task_queue, each.kind.label), measure(each)) for each in seen.backlogs or ())


def _tenants(seen: Snapshot) -> Iterable[tuple[str, TenantSurvey]]:
    return () if seen.mirror is None else seen.mirror.tenants.items()


STATE_GAUGES: Final = (
    StateGauge(
        name="horarium_source_up",
        unit="",
        description="Whether the source of gauges answered: the database with the mirror, or Temporal.",
        labels=("source",),
        read=_read_sources,
    ),
    StateGauge(
        name="horarium_jobs",
        unit="{job}",
        description="Jobs by state, the deleted ones left out.",
        labels=("tenant", "state"),
        read=_read_jobs,
    ),
    StateGauge(
        name="horarium_active_runs",
        unit="{run}",
        description="Runs that were dispatched and have not ended.",
        labels=("tenant",),
        read=_of_tenants(lambda survey: survey.active_runs),
    ),
    StateGauge(
        name="horarium_waiting_runs",
        unit="{run}",
        description="Runs that were decided and wait: for another run of their job, or in the catch-up lane.",
        labels=("tenant",),
        read=_of_tenants(lambda survey: survey.waiting_runs),
    ),
    StateGauge(
        name="horarium_parked_runs",
        unit="{run}",
        description="Active runs that wait for a downstream to recover, or for a worker that knows their activity.",
        labels=("tenant",),
        read=_of_tenants(lambda survey: survey.parked_runs),
    ),
    StateGauge(
        name="horarium_open_breakers",
        unit="{breaker}",
        description="Circuit breakers that are open, each 1.",
        labels=("tenant", "downstream"),
        read=_read_open_breakers,
    ),
    StateGauge(
        name="horarium_troubled_jobs",
        unit="{job}",
        description="Jobs that cannot go on; their health says why.",
        labels=("tenant",),
        read=_of_tenants(lambda survey: survey.troubled),
    ),
    StateGauge(
        name="horarium_overdue_jobs",
        unit="{job}",
        description="Jobs whose fire should have started more than a minute ago.",
        labels=("tenant",),
        read=_of_tenants(lambda survey: survey.overdue),
    ),
    StateGauge(
        name="horarium_scheduling_lag",
        unit="s",
        description="How long the earliest fire is due that is not known to have started.",
        read=_read_lag,
    ),
    StateGauge(
        name="horarium_task_queue_backlog",
        unit="{task}",
        description="Tasks that wait for a worker.",
        labels=("task_queue", "kind"),
        read=_of_queues(lambda backlog: float(backlog.count)),
    ),
    StateGauge(
        name="horarium_task_queue_oldest_age",
        unit="s",
        description="How long the oldest task has waited for a worker.",
        labels=("task_queue", "kind"),
        read=_of_queues(lambda backlog: backlog.oldest.total_seconds()),
    ),
    StateGauge(
        name="horarium_task_queue_pollers",
        unit="{worker}",
        description="Workers that have asked for work lately.",
        labels=("task_queue", "kind"),
        read=_of_queues(lambda backlog: float(backlog.pollers)),
    ),
    StateGauge(
        name="horarium_mirror_backlogs",
        unit="{workflow}",
        description="Workflows that carry records which the mirror did not take.",
        read=_read_records_open,
    ),
)
