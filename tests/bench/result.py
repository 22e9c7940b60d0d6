"""What the bench finds, as values that go to JSON."""

from dataclasses import dataclass, field

from tests.bench.column import Column


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a fire costs, under a steady load. Of one run."""

    fires: int
    lateness: tuple[float, ...]
    """Seconds from due to begun, in order of size."""

    lost: int
    persistence_requests: float
    state_writes: float
    events: float
    server_ms: float
    worker_ms: float

    @property
    def cpu_ms(self) -> float:
        """Server and worker together."""
        return self.server_ms + self.worker_ms


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How many fires a second were held. Of one run."""

    held: float
    """Fires a second in the last stretch before the 99th percentile of lateness passed a second, or fires were lost."""

    steps: tuple[tuple[float, float], ...] = ()
    """Fires a second, and the 99th percentile of their lateness, up to where it broke."""


@dataclass(frozen=True, kw_only=True)
class Burst:
    """Jobs that are due at one instant. Of one run."""

    jobs: int
    drained: float
    """Seconds until the last fire was over and known to be so; not a number where some never were."""

    lateness: tuple[float, ...]
    lost: int
    server_ms: float
    worker_ms: float


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Ten fires a second with all jobs in the worker's cache, and with hardly any. Of one run."""

    warm: Cost
    cold: Cost

    @property
    def ratio(self) -> float:
        """Cold to warm, server and worker together."""
        return self.cold.cpu_ms / self.warm.cpu_ms


@dataclass(frozen=True, kw_only=True)
class Sleepers:
    """Many jobs that sleep the long way."""

    jobs: int
    due: int
    """Of them, those that came due while it was measured: a slow machine's worker fires fewer a second."""

    asleep_at_once: int
    """Fewer only where some were due before the last was started."""

    started_a_second: float
    worker_bytes_before: int
    """With the few asleep that were registered as usual."""

    worker_bytes_asleep: int
    """With all of them asleep."""

    worker_bytes_tenth_fired: int
    """When the first tenth has fired."""

    worker_bytes_fired: int
    server_bytes: float
    """A job, all asleep."""

    database_bytes: float
    mirror_bytes: float
    fires_a_second: float
    lateness: tuple[float, ...]
    lost: int
    repeated: int


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """What the writer of the mirror can do alone."""

    database: str
    rows_a_second: float
    rows_a_transaction: float


@dataclass(frozen=True, kw_only=True)
class Nights:
    """Rows of the table of clock changes, and how many of them are not as they should be."""

    rows: int
    ours_wrong: int
    native_wrong: int


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A worker with one thing set otherwise, under a steady load and in a burst. Of one run."""

    name: str
    """What is set, such as ``batch_size``."""

    value: str
    column: Column
    cost: Cost
    burst: Burst


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A measurement that came to nothing."""

    what: str
    reason: str


@dataclass(kw_only=True)
class Results:
    """All of a bench; what was not asked for is empty."""

    cost: dict[Column, list[Cost]] = field(default_factory=dict)
    rate: dict[Column, list[Rate]] = field(default_factory=dict)
    burst: dict[Column, list[Burst]] = field(default_factory=dict)
    large_burst: dict[Column, list[Burst]] = field(default_factory=dict)
    cache: dict[Column, list[Cache]] = field(default_factory=dict)
    sleepers: Sleepers | None = None
    mirror: list[Mirror] = field(default_factory=list)
    dst: Nights | None = None
    knobs: list[Knob] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    strangers: list[float] = field(default_factory=list)
    """Share of the machine's time that other processes used, in each measurement."""

    planned_seconds: float = 0.0
    seconds: float = 0.0
