"""What the API answers, as values.

They hold against other releases of the API: a field that is new there is kept (``document`` has it), one that is not there yet
has its default, and a word that is new is just a word. Times are aware, in UTC.
"""

from datetime import date, datetime
from typing import Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ModelWrapValidatorHandler, PrivateAttr, model_validator

JsonObject: TypeAlias = dict[str, JsonValue]

Number: TypeAlias = int | float
"""Seconds, mostly: whole ones are written without a fraction."""


class Answer(BaseModel):
    """Parent of all answers."""

    model_config = ConfigDict(extra="allow", frozen=True, validate_by_name=True, validate_by_alias=True)

    _document: JsonObject = PrivateAttr(default_factory=dict)

    @property
    def document(self) -> JsonObject:
        """The JSON as it came, with what this release does not know of."""
        return self._document

    @model_validator(mode="wrap")
    @classmethod
    def _keep_document(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(value)
        if isinstance(value, dict):
            made._document = value
        return made


class Health(Answer):
    """Whether anything keeps a job from doing what it should."""

    ok: bool = True
    reasons: list[str] = []
    """For people; empty when ok."""


class JobCounts(Answer):
    """How often what happened, since the registration."""

    started: int = 0
    succeeded: int = 0
    dead: int = 0
    missed: int = 0
    skipped: int = 0


class HeldBy(Answer):
    """A hold over a job."""

    hold_id: str
    reason: str = ""
    by: str = ""
    until: datetime | None = None
    """Then it ends by itself."""

    catch_up: str = "none"
    """What its end does with the fires that fell into it."""


class JobSummary(Answer):
    """A job as lists show it: what it is, and how it stands."""

    job_id: str
    name: str
    state: str
    """``active``, ``paused``, ``completed`` or ``deleted``."""

    revision: int
    """Of the definition."""

    health: Health = Health()
    stale: bool = False
    """Temporal does not answer: this is what was known last."""

    next_run_at: datetime | None = None
    """Nominal time of the next fire; ``None`` when paused or completed, or held without a known end."""

    holds: list[HeldBy] = []
    """While there is one, the job does not fire."""

    next_target_at: datetime | None = None
    """The same with jitter: when it should start."""

    lag_seconds: Number = 0
    schedule: JsonValue = None
    """As a body may have it."""

    timezone: str = "UTC"
    target: JsonObject = {}
    description: str = ""
    owner: str = ""
    labels: dict[str, str] = {}
    counts: JobCounts = JobCounts()
    active_runs: int = 0
    waiting_runs: int = 0
    last_run_id: str | None = None
    last_status: str | None = None
    """Of the run that ended last, or ``missed`` when a miss came after it."""

    last_finished_at: datetime | None = None
    last_success_at: datetime | None = None
    last_error: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def etag(self) -> str:
        """The revision as ``if_match`` takes it."""
        return f'"{self.revision}"'


class Pause(Answer):
    """Why a job is paused, and until when."""

    at: datetime
    reason: str = ""
    by: str = ""
    until: datetime | None = None
    """Then it resumes by itself."""

    catch_up: str = "none"
    """What ``until`` does with the fires that fell into the pause."""


class Backoff(Answer):
    """How the wait before a retry grows."""

    kind: str = "exponential"
    base_seconds: Number = 1
    cap_seconds: Number = 900


class Job(JobSummary):
    """A job with everything that its owner asked for, all defaults filled in."""

    temporal_url: str | None = None
    pause: Pause | None = None
    schedule_in_words: str = ""
    dst: JsonObject = {}
    exclude: JsonObject = {}
    only: JsonObject = {}
    business_days: JsonObject | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    max_runs: int | None = None
    jitter_window_seconds: Number = 0
    time_critical: bool = False

    enabled: bool = True
    payload: JsonValue = None
    idempotency_key_template: str = ""
    missed_window: str = "RUN_ONCE"
    max_missed: int = 100
    catch_up_rate: int = 60
    max_delay_seconds: Number | None = None
    misfire_grace_seconds: Number = 60
    lookback_seconds: Number = 2_592_000
    overlap: str = "skip"
    max_concurrent: int = 10
    max_buffered: int = 100
    timeout_seconds: Number = 300
    heartbeat_timeout_seconds: Number | None = None
    queue_timeout_seconds: Number = 86_400
    max_retries: int = 3
    max_attempts: int = 4
    retry_backoff: Backoff = Backoff()
    retry_on: list[str] = []
    no_retry_on: list[str] = []
    deadline_seconds: Number | None = None
    downstream: str = ""
    isolation: str = "auto"
    alerts: JsonObject | None = None
    """``None``: as the installation has it for all jobs."""

    warnings: list[str] = []
    """Of the request just made."""


class ExportedJob(Answer):
    """A job as a body that makes it what it is."""

    job_id: str
    revision: int
    state: str
    body: JsonObject = {}
    """As ``put`` takes it."""

    @property
    def etag(self) -> str:
        """The revision as ``if_match`` takes it."""
        return f'"{self.revision}"'


class Attempt(Answer):
    """One try of a run."""

    number: int
    status: str
    """``running``, ``success``, ``failed``, ``timed_out``, ``lost`` or ``cancelled``."""

    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration: Number | None = None
    worker: str | None = None
    fence: int = 0
    error: str | None = None
    error_type: str | None = None
    http_status: int | None = None


class Run(Answer):
    """One intended execution of a job."""

    run_id: str
    job_id: str
    status: str
    """``pending``, ``running``, ``retrying``, ``parked``, ``success``, ``dead`` or ``cancelled``."""

    scheduled_at: datetime
    """The nominal time; for manual runs the time of the request."""

    kind: str = "scheduled"
    """``scheduled``, ``catch_up``, ``manual``, ``backfill`` or ``redrive``."""

    target_at: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration: Number | None = None
    attempt: int = 0
    """Number of the last attempt; 0 before the first."""

    max_attempts: int = 1
    next_attempt_at: datetime | None = None
    error: str | None = None
    error_type: str | None = None
    http_status: int | None = None
    result: JsonValue = None
    reason: str | None = None
    """Why it waits, is parked or was cancelled."""

    stands_for: int = 1
    """How many fires it answers for, itself included."""

    backfill_id: str | None = None
    redrive_of: str | None = None
    redriven_by: str | None = None
    idempotency_key: str = ""
    fence: int = 0
    revision: int = 1
    payload: JsonValue = None
    worker: str | None = None
    workflow_id: str = ""
    workflow_run_id: str = ""
    temporal_url: str | None = None
    attempts: list[Attempt] | None = None
    """``None`` unless asked for."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.status in ("success", "dead", "cancelled")


class Triggered(Answer):
    """What became of a trigger."""

    outcome: str
    """``started``; ``buffered``: the run waits for those in its way; ``skipped``: the overlap policy let it pass."""

    run_id: str
    run: Run
    consumed: datetime | None = None
    """Nominal time of the fire that the run takes the place of."""

    warnings: list[str] = []
    """Such as that the job is held."""


class LedgerEntry(Answer):
    """The outcome of one nominal fire, or of several neighbours alike."""

    first: datetime
    last: datetime
    count: int
    outcome: str
    reason: str | None = None
    run_id: str | None = None
    """Its run, or the run that blocked it or stands for it."""

    revision: int = 1
    backfilled: int = 0
    """How many of these fires have been backfilled since."""

    backfill_run_id: str | None = None


class Fire(Answer):
    """A fire to come."""

    nominal: datetime
    target: datetime
    local: str = ""
    """The nominal time on the clock of the schedule's zone."""


class RemovedFire(Answer):
    """A time that the rule names and at which nothing fires."""

    nominal: datetime
    reason: str
    local: str = ""


class Preview(Answer):
    """The next fires of a schedule; fewer than asked for when it ends before."""

    fires: list[Fire]
    removed: list[RemovedFire] = []
    """Times that are excluded, or have moved to a business day."""

    description: str = ""
    warnings: list[str] = []


class FieldError(Answer):
    """One thing that is wrong with a request, and where."""

    detail: str
    pointer: str | None = None
    """JSON pointer (RFC 6901) into the body; empty: the whole of it."""

    parameter: str | None = None
    """Name of the query parameter or header."""

    position: int | None = None
    """Zero-based index of the first offending character."""


class ExceededQuota(Answer):
    """A quota that does not suffice."""

    name: str
    """``jobs`` or ``fires_per_minute``."""

    limit: float
    current: float
    requested: float


class Problem(Answer):
    """An error as the API tells it (RFC 9457)."""

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    errors: list[FieldError] = []
    quota: ExceededQuota | None = None


class DeadLetter(Run):
    """A run that is dead, with all that is known of its end."""

    checkpoint: JsonValue = None
    """What its last attempt saved; given to the first attempt of a redrive."""


class BulkRedrive(Answer):
    """How far a redrive of many is."""

    redrive_id: str
    status: str
    """``running``, ``done``, ``cancelled`` or ``stopped``."""

    redriven: int = 0
    failed: int = 0
    deferred: int = 0
    last_error: str | None = None
    trouble: str | None = None
    """What it waits for, such as a database that is down."""


class BackfillPreview(Answer):
    """What a backfill would do."""

    job_id: str
    total: int
    """Fires in the range that nothing excludes."""

    revision: int = 1
    """Of the job's definition, which would be that of all the runs."""

    start: datetime | None = Field(default=None, alias="from")
    end: datetime | None = Field(default=None, alias="to")
    excluded: int = 0
    first: datetime | None = None
    """Nominal time of the first fire; ``None`` where there is none."""

    last: datetime | None = None
    existing_runs: int = 0
    """Nominal times of the range that have a run: what ``skip`` passes over."""


class Backfill(Answer):
    """A backfill: what it was asked for, and how far it is."""

    backfill_id: str
    job_id: str
    status: str
    """``running``, ``paused``, ``cancelling``, ``done``, ``cancelled`` or ``stopped``."""

    revision: int = 1
    start: datetime | None = Field(default=None, alias="from")
    end: datetime | None = Field(default=None, alias="to")
    existing: str = "skip"
    max_concurrent: int = 1
    rate_per_minute: float | None = None
    reason: str = ""
    requested_by: str = ""
    requested_at: datetime | None = None
    total: int = 0
    """Fires of the range, those that are passed over included."""

    done: int = 0
    """Of these: run to an end, or passed over."""

    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    skipped: int = 0
    running: list[str] = []
    """Runs that it has begun and that have not ended, by id."""

    through: datetime | None = None
    """The last nominal time that it has taken on."""

    trouble: str | None = None
    """What it waits for, such as a database that is down."""

    finished_at: datetime | None = None
    temporal_url: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.status in ("done", "cancelled", "stopped")


class SchedulerCount(Answer):
    """What one scheduler process knows of a downstream."""

    worker: str
    seen_at: datetime | None = None
    consecutive_failures: int = 0
    window_seconds: float = 0
    first_attempts: int = 0
    retries: int = 0
    retries_allowed: int = 0
    parked_runs: int = 0


class Downstream(Answer):
    """How a downstream stands."""

    downstream: str
    state: str | None = None
    """Of its circuit breaker: ``closed``, ``open`` or ``half_open``; ``None``: nobody says."""

    opened_at: datetime | None = None
    open_until: datetime | None = None
    openings: int = 0
    probes_out: int = 0
    jobs: int = 0
    parked_runs: int = 0
    schedulers: list[SchedulerCount] = []
    stale: bool = False


class CalendarDay(Answer):
    """Days of a calendar, both included."""

    from_: date = Field(alias="from")
    to: date
    name: str = ""


class CalendarSummary(Answer):
    """A calendar as lists show it."""

    name: str
    description: str = ""
    count: int = 0
    """Days in it."""

    first: date | None = None
    last: date | None = None
    weekend: list[str] = []
    version: int = 1
    created_at: datetime | None = None
    updated_at: datetime | None = None


class Calendar(CalendarSummary):
    """A calendar with all its days, and who uses it."""

    definition: JsonValue = None
    """What was written."""

    days: list[CalendarDay] = []
    """What that means."""

    jobs: int = 0
    job_ids: list[str] = []
    """The first hundred of the jobs that use it."""

    jobs_behind: int = 0
    """Jobs that have not taken on its present days yet."""


class Hold(Answer):
    """A hold over jobs with some labels."""

    hold_id: str | None = None
    """``None`` of a dry run."""

    state: str
    """``in_force``, ``released``, ``expired`` or ``dry_run``."""

    selector: str
    """``all``, or the labels that a job must have."""

    labels: dict[str, str] = {}
    reason: str = ""
    by: str = ""
    created_at: datetime | None = None
    until: datetime | None = None
    catch_up: str = "none"
    released_at: datetime | None = None
    jobs: int = 0
    """Jobs with these labels."""

    held: int = 0
    """Jobs that have been told of it, and not of its end."""

    job_ids: list[str] = []
    """The first hundred of the jobs with these labels."""


class ForecastStep(Answer):
    """One step of a forecast."""

    at: datetime
    fires: int


class CrowdedJob(Answer):
    """A job in a hot spot."""

    job_id: str
    fires: int
    name: str = ""


class HotSpot(Answer):
    """One of the busiest steps."""

    at: datetime
    fires: int
    jobs: int = 0
    busiest: list[CrowdedJob] = []
    suggestion: str | None = None
    """What would spread it."""


class Forecast(Answer):
    """Fires ahead, step by step."""

    from_: datetime = Field(alias="from")
    to: datetime
    step_seconds: int
    fires: int
    jobs: int = 0
    steps: list[ForecastStep] = []
    hot_spots: list[HotSpot] = []
    """The busiest first."""

    complete: bool = True
    left_out: int = 0
    """Jobs that there was no time for."""

    exact_until: datetime | None = None


class Change(Answer):
    """An entry of the audit log: a change, and who made it."""

    entry_id: str
    at: datetime
    action: str
    """Such as ``job.create``."""

    actor: str = ""
    actor_name: str = ""
    request_id: str = ""
    job_id: str | None = None
    subject: str | None = None
    before: JsonValue = None
    after: JsonValue = None
    outcome: str = ""
    """``applied``, ``refused``, ``in_doubt`` or ``begun``."""

    detail: str | None = None


class Quota(Answer):
    """What the tenant may have, and what it has."""

    tenant: str
    jobs: int = 0
    max_jobs: int | None = None
    """``None``: no limit."""

    fires_per_minute: float = 0
    max_fires_per_minute: float | None = None
    """``None``: no limit."""

    task_queues: list[str] = []
    """Patterns of task queues that its jobs may name; empty: any that no other tenant has."""


class Liveness(Answer):
    """That the API's process lives."""

    status: Literal["ok"]


class Readiness(Answer):
    """Whether jobs can be read and written."""

    status: Literal["ok", "unavailable"]
    database: str = ""
    temporal: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether everything is there."""
        return self.status == "ok"
