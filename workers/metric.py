"""The metrics that this process counts itself: what they are called, what they are labelled with, and how they are counted.

Labels are bounded, so that a metric stays one that a time-series database can hold: a job's id is never one; a tenant's is for
the first hundred, and ``_other`` for the rest. Counting is an addition in a dictionary; the rest is done when somebody looks.
"""

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import SpanContext

from activities.admission import Admissions
from activities.downstream_tally import DownstreamCounts
from activities.mirror_writer import MirrorWriter
from activities.upkeep import Upkeep
from workflows.admission import VerdictKind
from workflows.job_news import JobNews, RunNews
from workflows.reconciliation import PURGED_TABLES, DifferenceKind
from workflows.run import Outcome, RunKind

METER: Final = "horarium"

TENANTS: Final = 100
"""Tenants that are told apart in a process's metrics."""

OTHER: Final = "_other"
"""The label of all further tenants or downstreams. None can have this name."""

LATENESS_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds. The promise is a second; a restart takes some; an hour is an outage."""

LabelledCounts: TypeAlias = list[tuple[tuple[str, ...], int]]
"""Counts by the values of labels."""

ReadCounts: TypeAlias = Callable[[DownstreamCounts], LabelledCounts]

_WITH_A_FIRE: Final = frozenset({RunKind.SCHEDULED, RunKind.CATCH_UP})


class Tally:
    """A counter, by labels."""

    def __init__(self, meter: Meter, name: str, *, labels: tuple[str, ...], unit: str, description: str) -> None:
        self._labels = labels
        self._counts: Counts[tuple[str, ...]] = Counts()
        meter.create_observable_counter(name, [self._observe], unit=unit, description=description)

    def add(self, *values: str, count: int = 1) -> None:
        """Count, under the values of the labels in their order."""
        self._counts[values] += count

    def _observe(self, _: CallbackOptions) -> list[Observation]:
        counted = self._counts.copy()
        return [Observation(count, dict(zip(self._labels, values, strict=True))) for values, count in counted.items()]


class TenantLabel:
    """Makes tenants labels."""

    def __init__(self, *, most: int = TENANTS) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, tenant: str) -> str:
        """Name a tenant, or say that it is one of the others."""
        if tenant not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(tenant)
        return tenant


class JobMetrics:
    """Counts what happens to fires, runs and attempts."""

    def __init__(self, meter: Meter) -> None:
        self._tenant = TenantLabel()
        self._fires = Tally(
            meter,
            "horarium_fires",
            labels=("tenant", "outcome"),
            unit="{fire}",
            description="Nominal fire times whose outcome is certain, each counted once.",
        )
        self._runs = Tally(
            meter,
            "horarium_runs",
            labels=("tenant", "kind", "status"),
            unit="{run}",
            description="Runs that have ended.",
        )
        self._attempts = Tally(
            meter,
            "horarium_attempts",
            labels=("tenant", "status"),
            unit="{attempt}",
            description="Attempts that have ended.",
        )
        self._lateness = meter.create_histogram(
            "horarium_start_lateness",
            unit="s",
            description="From the target time of a run until its first attempt began.",
            explicit_bucket_boundaries_advisory=LATENESS_BUCKETS,
        )

    def hear(self, news: JobNews, _: SpanContext) -> None:
        """Count news."""
        tenant = self._tenant.of(news.tenant)
        for entry in news.ledger:
            self._fires.add(tenant, entry.outcome.value, count=entry.count)
        for told in news.runs:
            self._count_run(tenant, told)

    def _count_run(self, tenant: str, told: RunNews) -> None:
        run = told.run
        if told.settled and run.kind in _WITH_A_FIRE:
            outcome = Outcome.RAN if told.begun else run.outcome
            self._fires.add(tenant, outcome.value)
        if told.begun and run.started_at is not None:
            # Clocks of workers may be behind that of the server.
            late = max(0.0, (run.started_at - run.target_at).total_seconds())
            self._lateness.record(late, {"kind": run.kind.value})
        if told.attempt is not None:
            self._attempts.add(tenant, told.attempt.status.value)
        if told.ended:
            self._runs.add(tenant, run.kind.value, run.status.value)


def show_build(meter: Meter, *, version: str) -> None:
    """Show which version runs: of every process, job workers too."""
    meter.create_observable_gauge(
        "horarium_build_info",
        [lambda _: [Observation(1, {"version": version})]],
        description="Always 1; the label says which version runs.",
    )


def watch_mirror(meter: Meter, writer: MirrorWriter) -> None:
    """Show what a process's writer of the mirror does."""
    for name, unit, description, read in (
        ("rows_written", "{row}", "Rows committed to the mirror.", lambda: writer.rows_written),
        ("transactions", "{transaction}", "Transactions committed to the mirror.", lambda: writer.transactions),
        (
            "records_refused",
            "{record}",
            "Records that the database can never hold, each time they were tried.",
            lambda: writer.records_refused,
        ),
        (
            "nominal_conflicts",
            "{run}",
            "Runs refused because another has their nominal time. Anything but 0 breaks a promise.",
            lambda: writer.nominal_conflicts,
        ),
    ):
        meter.create_observable_counter(
            f"horarium_mirror_{name}", [_observing(read)], unit=unit, description=description
        )
    meter.create_observable_gauge(
        "horarium_mirror_lag",
        [_observing(lambda: mirror_lag(writer))],
        unit="s",
        description="Age of the oldest record that this process was given and has not written.",
    )


def watch_downstreams(meter: Meter, admissions: Admissions) -> None:
    """Show what a process sees of the downstreams of its jobs. Whether a breaker is open is a gauge, alike for all processes."""
    for name, unit, description, labels, read in (
        ("breaker_openings", "{opening}", "Circuit breakers that this process has opened.", (), openings_of),
        ("probes", "{probe}", "Attempts that tried an open downstream, and have ended.", ("result",), probes_of),
        (
            "retry_verdicts",
            "{attempt}",
            "Attempts that failed by their downstream's fault and would be retried, by what they were told.",
            ("verdict",),
            verdicts_of,
        ),
    ):
        observe = partial(_observe_downstreams, admissions, labels, read)
        meter.create_observable_counter(f"horarium_{name}", [observe], unit=unit, description=description)


def watch_upkeep(meter: Meter, upkeep: Upkeep) -> None:
    """Show what a process has found and done in looking after the mirror; one process does that at a time."""
    meter.create_observable_gauge(
        "horarium_mirror_differences",
        [_observing_each("kind", DifferenceKind, upkeep.left)],
        unit="{job}",
        description="Jobs of which the mirror told something else than Temporal, and was not mended in this process's last pass.",
    )
    meter.create_observable_counter(
        "horarium_mirror_mended",
        [_observing_each("kind", DifferenceKind, upkeep.mended)],
        unit="{job}",
        description="Jobs of which the mirror told something else than Temporal, and that were mended.",
    )
    meter.create_observable_counter(
        "horarium_mirror_purged_rows",
        [_observing_each("table", PURGED_TABLES, upkeep.purged)],
        unit="{row}",
        description="Rows that were forgotten because they are older than the retention; those of dropped months left out.",
    )


def count_by_downstream(
    seen: Mapping[tuple[str, str] | None, DownstreamCounts], read: ReadCounts
) -> Mapping[tuple[str, ...], int]:
    """Get what is counted of downstreams by their labels and those that ``read`` adds."""
    return {
        (*(downstream or (OTHER, OTHER)), *values): count
        for downstream, counts in seen.items()
        for values, count in read(counts)
    }


def openings_of(counts: DownstreamCounts) -> LabelledCounts:
    """How often the breaker was opened."""
    return [((), counts.openings)]


def probes_of(counts: DownstreamCounts) -> LabelledCounts:
    """How probes ended."""
    return [(("success",), counts.probes_succeeded), (("failed",), counts.probes_failed)]


def verdicts_of(counts: DownstreamCounts) -> LabelledCounts:
    """What failed attempts were told."""
    return [((kind.value,), counts.verdicts[kind]) for kind in VerdictKind]


def _observe_downstreams(
    admissions: Admissions, labels: tuple[str, ...], read: ReadCounts, _: CallbackOptions
) -> list[Observation]:
    names = ("tenant", "downstream", *labels)
    counted = count_by_downstream(admissions.counts(), read)
    return [Observation(count, dict(zip(names, values, strict=True))) for values, count in counted.items()]


def mirror_lag(writer: MirrorWriter) -> float:
    """Say how old the oldest unwritten record of a process is, in seconds: while the database fails, since it does."""
    failing = 0.0 if writer.failing_since is None else (datetime.now(UTC) - writer.failing_since).total_seconds()
    waiting = 0.0 if writer.waiting_since is None else time.monotonic() - writer.waiting_since
    return max(0.0, failing, waiting)


def _observing_each(
    label: str, values: Iterable[str], counts: Mapping[str, int]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(counts.get(str(value), 0), {label: str(value)}) for value in values]


def _observing(read: Callable[[], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(read())]
