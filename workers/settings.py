"""What the environment says: every setting of every process, with its unit, default and bounds.

Where Temporal is, and how to be let in, is said in Temporal's own way (``TEMPORAL_ADDRESS``, ``TEMPORAL_NAMESPACE``,
``TEMPORAL_API_KEY``, ``TEMPORAL_TLS_...``, or a profile in Temporal's configuration file); two settings here override it.
Durations are seconds (``90``) or ISO 8601 (``PT90S``). A setting that is wrong stops the process with one line that names it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from activities.http_address import Allowance, parse_allowance
from activities.http_url import read_url
from activities.quota import Quota
from horarium.effect import KEPT
from workflows.breaker import BreakerPolicy
from workflows.job import Tuning
from workflows.target import DEFAULT_TASK_QUEUE

PREFIX: Final = "HORARIUM_"

_SECRET: Final = frozenset({"alert_url", "alert_urls", "database_url", "effects_url"})
"""Settings whose values are not repeated in messages."""

EXIT_CODE: Final = 2
"""Of a process that was started with a wrong setting or a wrong option."""


LEAST_WEIGHT: Final = 0.001
MOST_WEIGHT: Final = 1_000.0
"""Bounds of the server for a fairness weight."""


LEAST_WAKE_AHEAD: Final = timedelta(seconds=10)
MOST_WAKE_AHEAD: Final = timedelta(minutes=10)
"""Bounds of ``wake_ahead``: less would be too short for a busy worker; what was woken takes a place in a worker's cache."""


class InvalidSettings(Exception):
    """One or more settings are wrong. The text has one line for each, which names it and says what is right."""


class Role(StrEnum):
    """What a worker process does."""

    SCHEDULER = "scheduler"
    """Runs the jobs' workflows, and our own activities. No job code."""

    JOB = "job"
    """Runs job code, and nothing else."""

    BOTH = "both"
    """Both, in one worker, so that an attempt starts without another round through the server."""


def _split(text: object) -> object:
    return [part.strip() for part in text.split(",") if part.strip()] if isinstance(text, str) else text


def _to_lower(text: object) -> object:
    return text.lower() if isinstance(text, str) else text


def _at_least(seconds: float) -> AfterValidator:
    def check(value: timedelta) -> timedelta:
        if value < timedelta(seconds=seconds):
            raise ValueError(f"at least {seconds:g} seconds")
        return value

    return AfterValidator(check)


def _check_wake_ahead(value: timedelta) -> timedelta:
    if value and not LEAST_WAKE_AHEAD <= value <= MOST_WAKE_AHEAD:
        least, most = LEAST_WAKE_AHEAD.total_seconds(), MOST_WAKE_AHEAD.total_seconds()
        raise ValueError(f"0, or {least:g} to {most:g} seconds")
    return value


def _to_seconds(text: object) -> object:
    try:
        return float(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _check_allowance(entries: tuple[str, ...]) -> tuple[str, ...]:
    parse_allowance(entries)
    return entries


def _check_url(url: str | None) -> str | None:
    if url is not None:
        read_url(url)
    return url


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Names separated by commas."""

Seconds = Annotated[timedelta, BeforeValidator(_to_seconds)]

Port = Annotated[int, Field(ge=1, le=65535)]

LogLevel = Literal["debug", "info", "warning", "error"]

LogFormat = Literal["text", "json"]


@dataclass(frozen=True)
class Ports:
    """A range of ports, both inclusive, of which the first free one is taken."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def _to_ports(text: object) -> object:
    if text is None or isinstance(text, Ports):
        return text
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", str(text).strip())
    first, last = (0, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
    if found is not None and first == last == 0:
        return None
    if not 1 <= first <= last <= 65535:
        raise ValueError("a port, or a range such as 9464-9483 of which the first free one is taken, or 0 for none")
    return Ports(first, last)


def _to_urls(text: object) -> object:
    if not isinstance(text, str):
        return text
    return dict(_to_url(part) for part in text.split())


def _to_url(text: str) -> tuple[str, str]:
    tenant, _, url = text.partition("=")
    if not tenant or not url:
        raise ValueError("tenant=URL, separated by blanks")
    read_url(url)
    return tenant, url


def _to_weights(text: object) -> object:
    if not isinstance(text, str):
        return text
    return dict(_to_weight(part) for part in text.split(",") if part.strip())


def _to_weight(text: str) -> tuple[str, float]:
    tenant, _, weight = text.partition("=")
    try:
        value = float(weight)
    except ValueError:
        value = 0.0
    if not tenant.strip() or not LEAST_WEIGHT <= value <= MOST_WEIGHT:
        raise ValueError(f"tenant=weight, a weight being from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, separated by commas")
    return tenant.strip(), value


Slots = Annotated[int, Field(ge=2, le=10_000)]


class Settings(BaseSettings):
    """The settings of a process. The environment variable of a field is its name in capitals, after ``HORARIUM_``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    database_url: str = Field(default="sqlite:///.data/horarium.sqlite", repr=False)
    """``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/DATABASE``."""

    effects_url: str | None = Field(default=None, repr=False)
    """Database in which ``once`` keeps its claims, the same for all workers of a job. Default: ``database_url``."""

    effect_retention: Annotated[Seconds, _at_least(86_400)] = KEPT
    """How long a claim is kept after it was last asked for; in any case thirty days longer than runs are
    (``run_retention``), since a run that is redriven later than its claims are kept repeats its effects."""

    temporal_address: str | None = None
    """``HOST:PORT``. Default: Temporal's own environment and profile; without these, ``localhost:7233``."""

    temporal_namespace: str | None = None
    """Default: Temporal's own environment and profile; without these, ``default``."""

    temporal_compression: bool = False
    """Whether what goes to Temporal and back is compressed (gzip): less traffic, more processor time on both sides."""

    encryption_keys_file: Path | None = None
    """File of the keys that payloads in Temporal are encrypted with, the same for all processes: ``docs/encryption.md``. Default:
    nothing is encrypted."""

    role: Annotated[Role, BeforeValidator(_to_lower)] = Role.BOTH
    """``scheduler``, ``job`` or ``both``: what a worker does."""

    activities: Names = ()
    """Modules with job code, such as ``my_team.jobs,other.jobs``: each ``@activity.defn`` function in them becomes
    runnable as a job. Looked for where Horarium is installed, then in the working directory."""

    examples: bool = True
    """Whether the example jobs and ``noop`` are loaded too. A function of yours with the same name goes first."""

    task_queues: Annotated[Names, Field(min_length=1)] = (DEFAULT_TASK_QUEUE,)
    """Queues whose job activities this worker runs."""

    job_slots: Slots = 100
    """Attempts that run at once, for each task queue; a function that is not ``async`` holds a thread meanwhile."""

    workflow_task_slots: Slots = 40
    """Decisions that jobs' workflows make at once. One that a busy process does not get done within two seconds is lost and made
    again, which costs most in the bursts that cause it."""

    local_activity_slots: Slots = 200
    """Plans and mirror records that are made at once."""

    max_cached_workflows: Annotated[int, Field(ge=10)] = 2500
    """Jobs kept in memory between two decisions, 90 to 130 KB each. At least ``workflow_task_slots``; where more jobs fire in
    turn than all workers keep, each fire makes one read a history again."""

    workflow_sandbox: bool = False
    """Whether workflows run in Temporal's sandbox, which costs most of what it finds in tests: ``docs/performance.md``."""

    http_allow: Annotated[Names, AfterValidator(_check_allowance)] = ()
    """Hosts, addresses and networks, such as ``hooks.internal,10.1.0.0/16``, that jobs with an ``http`` target may reach although
    they are not public. A host may then have any address but those where clouds keep a machine's credentials."""

    graceful_shutdown: Annotated[Seconds, _at_least(0)] = timedelta(seconds=20)
    """How long running attempts may go on after SIGTERM. Then they are cancelled, and five seconds later the process ends."""

    ready_file: Path | None = None
    """Made when a worker polls its task queues, removed when it stops: for probes that look at files."""

    log_level: Annotated[LogLevel, BeforeValidator(_to_lower)] = "info"
    """``debug``, ``info``, ``warning`` or ``error``."""

    log_format: Annotated[LogFormat, BeforeValidator(_to_lower)] = "text"
    """``text`` for people, ``json`` for machines: one object a line."""

    metrics_port: Annotated[Ports | None, NoDecode, BeforeValidator(_to_ports)] = None
    """Where ``/metrics`` is served, for Prometheus: a port, or a range of which the first free one is taken, as several
    processes on a machine need it. ``0`` or nothing: nowhere. The API has ``/metrics`` on its own port as well."""

    metrics_host: str = "127.0.0.1"
    """Address that ``/metrics`` is served on. Nothing secret is there, but names of tenants and task queues are."""

    api_host: str = "127.0.0.1"
    """Address that the API listens on."""

    api_port: Port = 8000
    """Port that the API listens on."""

    require_if_match: bool = False
    """Whether whoever changes or deletes a job must name the revision that was seen, in ``If-Match``."""

    quota_jobs: Annotated[int, Field(ge=0)] | None = None
    """Jobs, active or paused, that a tenant may have. Default: no limit. One tenant's own: ``horarium tenants set-quota``.
    Heeded by the API."""

    quota_fires_per_minute: Annotated[float, Field(ge=0)] | None = None
    """Fires a minute that a tenant's jobs may come to together, each counted at its densest. Default: no limit. Heeded by
    the API."""

    reconcile_every: Annotated[Seconds, _at_least(1)] = timedelta(minutes=1)
    """How often the mirror is compared with Temporal. Where that takes long, less often: a twentieth of the time at most."""

    run_retention: Annotated[Seconds, _at_least(86_400)] = timedelta(days=90)
    """How long runs, attempts, the ledger and backfills are kept after their end, and after them jobs that were deleted. Heeded
    by scheduler workers; the API is to be given the same."""

    audit_retention: Annotated[Seconds, _at_least(86_400)] = timedelta(days=400)
    """How long the audit log is kept, and holds that are over. Heeded by the API."""

    alert_url: Annotated[str | None, AfterValidator(_check_url)] = Field(default=None, repr=False)
    """Where alerts of jobs go that name no receiver. With it, every job that has no ``alerts`` of its own tells of
    dead runs and missed fires."""

    alert_urls: Annotated[dict[str, str], NoDecode, BeforeValidator(_to_urls)] = Field(default={}, repr=False)
    """The same for single tenants, before ``alert_url``: ``payroll=https://a.example reports=https://b.example``."""

    ui_url: str | None = None
    """Where people find Temporal's Web UI, such as ``http://localhost:8233``; for links, and the one site whose pages may ask
    ``/codec``. Default: no links, and nobody may."""

    long_sleep_threshold: Annotated[Seconds, _at_least(1)] = Tuning().long_sleep_threshold
    """A job that has at least so long until its next fire sleeps without a history. Below ten minutes its price, a closed
    workflow run a fire, is higher than its gain."""

    wake_ahead: Annotated[Seconds, AfterValidator(_check_wake_ahead)] = timedelta(seconds=60)
    """How long before a fire without jitter, at most, a job is woken from a long sleep, so that many that are due at one instant
    can begin at once. Where less than ``long_sleep_threshold`` would be left to sleep, it wakes at the fire. ``0``: always."""

    history_limit: Annotated[int, Field(ge=50, le=10_000)] = Tuning().history_limit
    """Events after which a job's workflow continues as new."""

    batch_size: Annotated[int, Field(ge=1, le=100)] = Tuning().batch_size
    """Fires that are planned at once."""

    visible_after: Annotated[Seconds, _at_least(0.1)] = Tuning().visible_after
    """An attempt that takes longer is shown as running, or as waiting for a worker."""

    outbox_limit: Annotated[int, Field(ge=1, le=1_000)] = Tuning().outbox_limit
    """Records that a job keeps itself while the database is down; more go to a workflow of their own."""

    breaker_failures: Annotated[int, Field(ge=1)] = BreakerPolicy().failures_to_open
    """Consecutive failures of a downstream after which its circuit breaker opens, as one scheduler process sees them."""

    breaker_open: Annotated[Seconds, _at_least(1)] = BreakerPolicy().open_for
    """How long it stays open before a probe; each probe that fails doubles it, up to ``breaker_longest_open``."""

    breaker_longest_open: Annotated[Seconds, _at_least(1)] = BreakerPolicy().longest_open
    """How long a breaker stays open at most, before its next probe."""

    breaker_probes: Annotated[int, Field(ge=1, le=100)] = BreakerPolicy().probes
    """Attempts that try an open downstream at once."""

    retry_budget_ratio: Annotated[float, Field(ge=0, le=10)] = BreakerPolicy().budget_ratio
    """Retries to first attempts of one downstream, within ``retry_budget_window``."""

    retry_budget_floor: Annotated[int, Field(ge=0)] = BreakerPolicy().budget_floor
    """Retries that are always allowed within the window."""

    retry_budget_window: Annotated[Seconds, _at_least(1)] = BreakerPolicy().budget_window
    """Over which time retries and first attempts are counted."""

    admission_rate: Annotated[float, Field(gt=0)] = BreakerPolicy().admission_rate
    """Attempts a second, for each scheduler process, that are sent to one downstream, beyond a burst of ``breaker_failures``."""

    readmission_rate: Annotated[float, Field(gt=0)] = BreakerPolicy().readmission_rate
    """Runs a second, for each scheduler process, that come back to a downstream that has recovered."""

    catch_up_per_second: Annotated[float, Field(ge=0, le=10_000)] = 20
    """Starts of catch-up, backfill and redriven runs a second, at most, for each scheduler process, over all jobs. Further ones
    are parked until their turn. ``0``: as many as come."""

    max_backfill_fires: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Fires that one backfill may have. A longer range is refused. Heeded by the API."""

    fairness_weights: Annotated[dict[str, float], NoDecode, BeforeValidator(_to_weights)] = {}
    """Shares of busy workers by tenant, such as ``payroll=5,reports=0.5``; 1 for all others. Only a server with
    ``matching.enableFairness`` heeds them."""

    @model_validator(mode="after")
    def _cache_holds_the_tasks(self) -> "Settings":
        if self.max_cached_workflows < self.workflow_task_slots:
            raise ValueError(
                f"{PREFIX}MAX_CACHED_WORKFLOWS: at least {PREFIX}WORKFLOW_TASK_SLOTS, which is {self.workflow_task_slots}"
            )
        return self

    def breaker_policy(self) -> BreakerPolicy:
        """The bounds of breakers and retry budgets."""
        return BreakerPolicy(
            failures_to_open=self.breaker_failures,
            open_for=self.breaker_open,
            longest_open=self.breaker_longest_open,
            probes=self.breaker_probes,
            budget_ratio=self.retry_budget_ratio,
            budget_floor=self.retry_budget_floor,
            budget_window=self.retry_budget_window,
            admission_rate=self.admission_rate,
            readmission_rate=self.readmission_rate,
        )

    def quota(self) -> Quota:
        """What a tenant may have for which nothing else is settled."""
        return Quota(jobs=self.quota_jobs, fires_per_minute=self.quota_fires_per_minute)

    def http_allowance(self) -> Allowance:
        """What ``http`` targets may reach although it is not public."""
        return parse_allowance(self.http_allow)

    def tuning(self, *, search_attributes: bool) -> Tuning:
        """The bounds that reach a job with its plan."""
        return Tuning(
            long_sleep_threshold=self.long_sleep_threshold,
            wake_ahead=self.wake_ahead,
            history_limit=self.history_limit,
            batch_size=self.batch_size,
            visible_after=self.visible_after,
            outbox_limit=self.outbox_limit,
            search_attributes=search_attributes,
            alerts_for_all=self.alert_url is not None,
            paces_catch_up=self.catch_up_per_second > 0,
        )


def read_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """Read the environment. ``overrides``, such as options of a command line, go first; those that are ``None`` do not.

    Raises ``InvalidSettings``.
    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise InvalidSettings("\n".join(_describe(problem) for problem in error.errors())) from None


def list_likely_typos(environment: Mapping[str, str]) -> list[str]:
    """List variables that look like a setting and are none, each with a suggestion."""
    known = [variable_of(name) for name in Settings.model_fields]
    strangers = sorted(name for name in environment if name.upper().startswith(PREFIX) and name.upper() not in known)
    guesses = ((name, get_close_matches(name.upper(), known, n=1, cutoff=0.85)) for name in strangers)
    return [f"{name} is not a setting; did you mean {guess[0]}?" for name, guess in guesses if guess]


def variable_of(field: str) -> str:
    """Name the environment variable of a setting."""
    return f"{PREFIX}{field.upper()}"


def _describe(problem: ErrorDetails) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    field = str(problem["loc"][0])
    given = "" if field in _SECRET else f", not {problem['input']!r}"
    return f"{variable_of(field)}: {message[:1].lower()}{message[1:]}{given}"
