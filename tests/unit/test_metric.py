"""What the metrics of jobs count, and what they are labelled with."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.trace import INVALID_SPAN_CONTEXT

from activities.downstream_tally import DownstreamCounts, DownstreamTally
from workers.metric import METER, OTHER, JobMetrics, TenantLabel, count_by_downstream, verdicts_of
from workflows.admission import VerdictKind
from workflows.job import LedgerEntry
from workflows.job_news import JobNews, RunNews
from workflows.run import Attempt, AttemptStatus, Outcome, Run, RunKind, RunStatus

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Point:
    """One series."""

    metric: str
    labels: tuple[tuple[str, str], ...]
    value: float
    """Of a histogram, the sum."""


class Counted:
    """Metrics, and what a reader sees of them."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.metrics = JobMetrics(MeterProvider(metric_readers=[self._reader]).get_meter(METER))

    def hear(
        self, *, tenant: str = "default", ledger: tuple[LedgerEntry, ...] = (), runs: tuple[RunNews, ...] = ()
    ) -> None:
        """Tell news."""
        self.metrics.hear(JobNews(tenant=tenant, job_id="j", version=1, ledger=ledger, runs=runs), INVALID_SPAN_CONTEXT)

    def points(self) -> Iterator[Point]:
        """Read."""
        data = self._reader.get_metrics_data()
        for of_resource in data.resource_metrics if data else ():
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    for point in metric.data.data_points:
                        labels = tuple(sorted((name, str(value)) for name, value in (point.attributes or {}).items()))
                        value: float = (
                            point.sum if isinstance(point, HistogramDataPoint) else getattr(point, "value", 0)
                        )
                        yield Point(metric.name, labels, value)


def run(**fields: object) -> Run:
    """A live run of noon."""
    values = {"run_id": "j:1", "scheduled_at": NOON, "target_at": NOON, "created_at": NOON}
    return Run.model_validate(values | fields)


def test_each_fire_is_counted_by_its_outcome_and_its_run_by_its_status() -> None:
    """A range of the ledger counts as many as it holds."""
    counted = Counted()
    counted.hear(ledger=(LedgerEntry(first=NOON, last=NOON, count=7, outcome=Outcome.MISSED),))
    ended = run(status=RunStatus.DEAD, outcome=Outcome.RAN, started_at=NOON + timedelta(seconds=2))
    attempt = Attempt(scheduled_at=NOON, dispatched_at=NOON, status=AttemptStatus.LOST)
    counted.hear(runs=(RunNews(run=ended, begun=True, settled=True, ended=True, attempt=attempt),))
    assert set(counted.points()) == {
        Point("horarium_fires", (("outcome", "missed"), ("tenant", "default")), 7),
        Point("horarium_fires", (("outcome", "ran"), ("tenant", "default")), 1),
        Point("horarium_runs", (("kind", "scheduled"), ("status", "dead"), ("tenant", "default")), 1),
        Point("horarium_attempts", (("status", "lost"), ("tenant", "default")), 1),
        Point("horarium_start_lateness", (("kind", "scheduled"),), 2.0),
    }


def test_a_manual_run_is_a_run_and_no_fire() -> None:
    """SB-165: fires are nominal times; somebody's trigger would break their sum."""
    counted = Counted()
    manual = run(kind=RunKind.MANUAL, status=RunStatus.SUCCESS, outcome=Outcome.RAN, started_at=NOON)
    counted.hear(runs=(RunNews(run=manual, begun=True, settled=True, ended=True),))
    assert {point.metric for point in counted.points()} == {"horarium_runs", "horarium_start_lateness"}


def test_a_worker_whose_clock_is_behind_is_never_early() -> None:
    """SB-113: lateness is not negative, whatever clocks say."""
    counted = Counted()
    counted.hear(runs=(RunNews(run=run(started_at=NOON - timedelta(hours=2)), begun=True, settled=True),))
    [lateness] = [point.value for point in counted.points() if point.metric == "horarium_start_lateness"]
    assert lateness == 0.0


def test_the_number_of_series_is_bounded_whatever_tenants_and_jobs_there_are() -> None:
    """SB-166: no label is unbounded; tenants beyond the first hundred share one, and nothing of them is lost."""
    counted = Counted()
    for number in range(1_000):
        counted.hear(tenant=f"tenant-{number}", ledger=(LedgerEntry(first=NOON, last=NOON, outcome=Outcome.SKIPPED),))
    points = list(counted.points())
    assert len(points) == 101
    assert sum(point.value for point in points) == 1_000
    [others] = [point.value for point in points if dict(point.labels)["tenant"] == OTHER]
    assert others == 900


def test_a_tenant_keeps_its_label() -> None:
    """The first ones do, for as long as the process lives."""
    label = TenantLabel(most=2)
    assert [label.of(tenant) for tenant in ("a", "b", "c", "a", "d", "b")] == ["a", "b", OTHER, "a", OTHER, "b"]


def test_downstreams_beyond_the_first_ones_share_a_series_and_nothing_is_lost() -> None:
    """A tenant may name as many downstreams as it likes."""
    tally = DownstreamTally(most=10)
    for number in range(1_000):
        tally.of("default", f"bank-{number}").openings += 1
    counted = count_by_downstream(tally.read(), lambda counts: [((), counts.openings)])
    assert len(counted) == 11
    assert counted[OTHER, OTHER] == 990
    assert sum(counted.values()) == 1_000
    assert counted["default", "bank-0"] == counted["default", "bank-9"] == 1


def test_what_failed_attempts_were_told_is_counted_by_each_word() -> None:
    """All words are there from the beginning, so that the first death of a budget is an increase."""
    counts = DownstreamCounts()
    counts.verdicts[VerdictKind.EXHAUSTED] += 2
    assert verdicts_of(counts) == [(("retry",), 0), (("park",), 0), (("exhausted",), 2)]
