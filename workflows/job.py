"""A job as its owner defines it, and the state that its workflow carries.

Owns the shapes and their defaults. Decisions about them are in ``policies`` and ``resilience``.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pydantic import Field, JsonValue

from workflows.alert_rule import AlertRules, Expectation
from workflows.backfill_record import BackfillRecord
from workflows.contracts import LOGIC_VERSION
from workflows.run import Attempt, Outcome, Run
from workflows.schedule import Fire, FireRange, FireSurvey, Schedule
from workflows.target import ActivityTarget, Target
from workflows.value import Value

DEFAULT_TENANT = "default"
"""The tenant of everything until there are others."""


class CatchUpPolicy(StrEnum):
    """What becomes of fires that were seen too late (``missed_window``)."""

    SKIP = "SKIP"
    """Nothing runs; the range is in the ledger as missed."""

    RUN_ONCE = "RUN_ONCE"
    """One run for the newest; the others are coalesced into it."""

    RUN_ALL = "RUN_ALL"
    """Each runs, oldest first, at most ``max_missed``, at ``catch_up_rate``."""

    DEADLINE = "DEADLINE"
    """A fire runs only if it can start within ``max_delay_seconds`` of its target."""


class OverlapPolicy(StrEnum):
    """What a fire does when a run of its job is not final."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    """One fire waits; while it does, further ones are skipped."""

    BUFFER_ALL = "buffer_all"
    """Fires wait in order, at most ``max_buffered``; further ones are dropped."""

    CANCEL_OTHER = "cancel_other"
    """Cancels the active runs and starts when they have ended. Of several waiting, the newest stays."""

    TERMINATE_OTHER = "terminate_other"
    """Gives the active runs up and starts at once."""

    ALLOW = "allow"
    """Runs beside the others, at most ``max_concurrent``; further ones are skipped."""


class Backoff(StrEnum):
    """How the wait before a retry grows."""

    EXPONENTIAL = "exponential"
    FIXED = "fixed"


class Isolation(StrEnum):
    """Where a run is carried out."""

    AUTO = "auto"
    """In the job's workflow, unless an attempt may take longer than ten minutes."""

    WORKFLOW = "workflow"
    """In a workflow of its own."""


class RetryPolicy(Value):
    """When and how often a failed attempt is followed by another."""

    max_attempts: int = 4
    """Attempts in all, the first included."""

    backoff: Backoff = Backoff.EXPONENTIAL
    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(seconds=900)
    retry_on: tuple[str, ...] = ()
    """Kinds and names of failures (``classification``) that alone are retried. Empty: all but refusals."""

    no_retry_on: tuple[str, ...] = ()
    """Kinds and names of failures that are not."""


class JobDefinition(Value):
    """What the owner of a job asks for. Replaced as a whole; ``revision`` counts the replacements."""

    name: str = ""
    description: str = ""
    owner: str = ""
    labels: dict[str, str] = {}
    schedule: Schedule = Schedule()
    target: Target = ActivityTarget()
    payload: JsonValue = None
    idempotency_key_template: str = "{{job_id}}:{{scheduled_at_unix}}"

    missed_window: CatchUpPolicy = CatchUpPolicy.RUN_ONCE
    max_missed: int = 100
    catch_up_rate: int = 60
    """Catch-up runs started a minute, at most."""

    max_delay: timedelta | None = None
    """Only under ``DEADLINE``: how long after its target a fire may still start."""

    misfire_grace: timedelta | None = None
    """How long after its target a fire is still live. ``None``: half the period, at least 60 s, at most 10 min."""

    lookback: timedelta = timedelta(days=30)
    """Fires older than this are missed, whatever the policy."""

    overlap: OverlapPolicy = OverlapPolicy.SKIP
    max_concurrent: int = 10
    max_buffered: int = 100

    timeout: timedelta = timedelta(seconds=300)
    """For one attempt, from its start."""

    heartbeat_timeout: timedelta | None = timedelta(seconds=30)
    queue_timeout: timedelta = timedelta(days=1)
    """How long an attempt may wait for a worker."""

    deadline: timedelta | None = None
    """From a run's target: no attempt starts later. ``None``: attempts alone bound a run."""

    downstream: str = ""
    """What the job calls, such as ``bank-api``: jobs that name the same share its breaker and retry budget. Empty: none."""

    retry: RetryPolicy = RetryPolicy()
    isolation: Isolation = Isolation.AUTO
    alerts: AlertRules | None = None
    """``None``: what the installation has for all jobs, if that has anything."""


class Lifecycle(StrEnum):
    """Whether a job fires (``state`` in the API)."""

    ACTIVE = "active"
    PAUSED = "paused"
    """Fires are recorded as paused. Entered by ``enabled: false`` or a pause, left by a resume."""

    COMPLETED = "completed"
    """No fire is left."""

    DELETED = "deleted"
    """Removed by its owner. Its history is kept."""


class PausedFires(StrEnum):
    """What becomes, when a pause ends, of the fires that fell into it (``catch_up``)."""

    NONE = "none"
    """None runs; the ledger says ``paused``."""

    APPLY = "apply"
    """They count as missed, however short the pause was: the job's catch-up policy decides."""


class Pause(Value):
    """Why a job is paused, since when, and how long."""

    at: datetime
    reason: str = ""
    by: str = ""
    until: datetime | None = None
    """When the job resumes by itself; ``None``: when somebody resumes it."""

    catch_up: PausedFires = PausedFires.NONE
    """What ``until`` does with the fires that fell into the pause."""


class Hold(Value):
    """A hold over jobs with some labels, as each of them carries it."""

    hold_id: str = ""
    at: datetime
    """When it was asked for."""

    reason: str = ""
    by: str = ""
    until: datetime | None = None
    """When it ends by itself; ``None``: when somebody releases it."""

    catch_up: PausedFires = PausedFires.NONE
    """What its end does with the fires that fell into it."""


class CarriedFire(Value):
    """A fire whose nominal time had come and whose target time had not when its job was changed or resumed."""

    fire: Fire
    revision: int = 1
    """Of the definition in force at its nominal time, under which it runs."""

    grace: timedelta = timedelta(minutes=1)
    """As in the plan that it was in."""


class EarlierDefinition(Value):
    """A definition that was replaced while runs of it were not final."""

    revision: int = 1
    definition: JobDefinition = JobDefinition()


class Tuning(Value):
    """Bounds set by whoever runs the workers. They reach a job with its plan, so that replay does not notice a change."""

    long_sleep_threshold: timedelta = timedelta(minutes=10)
    """A gap at least this long is slept as a continue-as-new with a backoff, a shorter one on a timer."""

    wake_ahead: timedelta = timedelta(0)
    """How long before a fire that is due to the second, at most, a job is woken from a long sleep, to sleep the rest on a timer.
    Stays 0 here: plans in recorded histories were made before there was such a bound."""

    history_limit: int = 400
    """Events after which a job continues as new when it can; detached runs take over when it cannot. Leaves room for
    one more turn below 500."""

    batch_size: int = 14
    """Fires asked for at once, as many as Temporal's own scheduler caches."""

    visible_after: timedelta = timedelta(seconds=2)
    """A run that has not answered by then is shown as running or as waiting for a worker."""

    outbox_limit: int = 100
    """Unsent records that a job carries itself; more move to a workflow that retries for ever."""

    alerts_for_all: bool = False
    """Whether jobs that say nothing of alerts raise them too: the installation has somebody to tell."""

    paces_catch_up: bool = False
    """Whether scheduler processes hand out places for the starts of catch-up runs, over all jobs."""

    fairness_weight: float = 1.0
    """The tenant's share of busy workers, beside other tenants."""

    search_attributes: bool = True
    """Whether the namespace knows our search attributes; an unknown one would block the job."""


class FirePlan(Value):
    """The answer of the planner: what is due, what comes next, and the bounds in force."""

    revision: int = 0
    """Of the definition planned for."""

    planned_at: datetime
    too_old: FireSurvey | None = None
    """Fires older than ``lookback``. When given, nothing else is: the planner is asked again from where they end."""

    missed: FireSurvey | None = None
    """Fires already seen too late at ``planned_at``."""

    complete: bool = True
    """False where ``missed`` goes on after its ``through``: the planner is asked again with it."""

    stalled: bool = False
    """Nobody was there for the fires that are due: the rest of an answer that is not complete is asked for alike."""

    upcoming: tuple[Fire, ...] = ()
    """The next wanted fires after the missed ones, in order."""

    excluded: tuple[FireRange, ...] = ()
    """Unwanted fires before and between the upcoming ones, and after the last of all."""

    exhausted: bool = False
    """The schedule has nothing after ``upcoming``."""

    is_lasting: bool = False
    """No rule of a zone has a say in these fires, so none that changes can change them."""

    ask_again_at: datetime | None = None
    """Set where there are more excluded fires than ``excluded`` tells: later fires are decided by another plan."""

    offset: timedelta = timedelta(0)
    """The job's jitter: target minus nominal."""

    grace: timedelta = timedelta(minutes=1)
    """How long after its target a fire of this job is live."""

    tuning: Tuning = Tuning()


class PlanRequest(Value):
    """What the planner is asked."""

    tenant: str = DEFAULT_TENANT
    job_id: str = ""
    definition: JobDefinition = JobDefinition()
    revision: int = 1
    after: datetime
    """The high-water mark: only later fires count."""

    now: datetime
    stalled: bool = False
    """Nobody was there when the fires came that are due: those within the grace are missed with the others."""

    so_far: FireSurvey | None = None
    """The missed fires of an answer that was not complete."""

    missed_until: datetime | None = None
    """Fires with a target up to this are missed, whatever the grace: a pause ended then."""


class SurveyRequest(Value):
    """Which fires are asked for: those with ``after < nominal <= until``."""

    job_id: str = ""
    schedule: Schedule = Schedule()
    after: datetime
    until: datetime


class LedgerEntry(Value):
    """The outcome of one nominal fire, or of several neighbours alike. Fires that have a run are told by the run."""

    first: datetime
    last: datetime
    count: int = 1
    outcome: Outcome
    reason: str | None = None
    run_id: str | None = None
    """The run that blocked it, stands for it, or used it up."""

    revision: int = 1


class JobCounts(Value):
    """How often what happened, since the registration. Kept here because the mirror can be lost."""

    started: int = 0
    """Scheduled and catch-up runs: what ``max_runs`` bounds."""

    succeeded: int = 0
    dead: int = 0
    missed: int = 0
    """Fires with the outcome missed or dropped."""

    skipped: int = 0


class JobRecord(Value):
    """A job as the mirror shows it. A record with a lower ``version`` than the row's changes nothing."""

    tenant: str = DEFAULT_TENANT
    job_id: str = ""
    version: int = 0
    """Strictly increasing over all records of a job id, re-registration included (microseconds when it was registered)."""

    revision: int = 1
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    definition: JobDefinition = JobDefinition()
    registered_at: datetime
    updated_at: datetime
    next_run_at: datetime | None = None
    """Nominal time of the next fire; ``None`` when paused, completed or deleted."""

    next_target_at: datetime | None = None
    high_water: datetime
    fence: int = 0
    counts: JobCounts = JobCounts()
    active_runs: int = 0
    waiting_runs: int = 0
    last_run_id: str | None = None
    last_status: str | None = None
    """Status of the last run that ended, or ``missed`` when a miss came after it."""

    last_finished_at: datetime | None = None
    last_success_at: datetime | None = None
    last_error: str | None = None
    trouble: str | None = None
    """What keeps the job from going on, such as a zone that its workers do not know; ``None`` when nothing does."""

    pause: Pause | None = None
    """Of a paused job."""

    holds: tuple[Hold, ...] = ()
    """Of a job that is active or paused; see ``JobState.holds``."""


class RunRecord(Value):
    """A run as the mirror shows it; guarded by ``version`` as jobs are."""

    tenant: str = DEFAULT_TENANT
    job_id: str = ""
    version: int = 0
    run: Run


class AttemptRecord(Value):
    """An attempt as the mirror shows it; guarded by ``version`` as jobs are."""

    tenant: str = DEFAULT_TENANT
    job_id: str = ""
    version: int = 0
    attempt: Attempt


class LedgerRecord(Value):
    """A ledger entry as the mirror keeps it; its key is tenant, job id and first nominal time."""

    tenant: str = DEFAULT_TENANT
    job_id: str = ""
    version: int = 0
    entry: LedgerEntry


class MirrorBatch(Value):
    """Records of one job, to be written together. Writing one twice, late or out of order changes nothing."""

    job: JobRecord | None = None
    runs: tuple[RunRecord, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    ledger: tuple[LedgerRecord, ...] = ()
    backfills: tuple[BackfillRecord, ...] = ()
    """Sent by their own workflows, one at a time."""


class TriggerOutcome(StrEnum):
    """What became of a trigger at once."""

    STARTED = "started"
    BUFFERED = "buffered"
    """Its run waits for the runs in its way."""

    SKIPPED = "skipped"
    """The overlap policy let it pass; its run says for which run."""


class Triggered(Value):
    """What a trigger was answered."""

    run_id: str = ""
    outcome: TriggerOutcome = TriggerOutcome.STARTED
    consumed: datetime | None = None
    """Nominal time of the fire that it used up."""


class Answer(Value):
    """What a control update was answered, kept so that a repeated one changes nothing."""

    key: str = ""
    at: datetime
    record: JobRecord | None = None
    """The job as it then stood, its definition and its holds left out; ``None`` for a trigger."""

    triggered: Triggered | None = None
    """Of a trigger."""

    refusal: str = ""
    """Why nothing was done; empty when it was."""

    refusal_type: str = "Conflict"
    """Error type of the refusal."""


class Redriven(Value):
    """A redrive that a job has taken on, remembered so that it is not taken on twice."""

    run_id: str = ""
    at: datetime


class JobState(Value):
    """Everything that a job's workflow knows, and all that crosses a continue-as-new."""

    tenant: str = DEFAULT_TENANT
    job_id: str = ""
    definition: JobDefinition = JobDefinition()
    revision: int = 1
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    registered_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    updated_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """When the definition or the lifecycle changed last."""

    version: int = 0
    """Of the last record made."""

    fence: int = 0
    """Of the last attempt dispatched, in the job's whole life."""

    high_water: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """Last nominal time decided. Falls only, to ``before_skip``, when the schedule changes or the job is deleted."""

    before_skip: datetime | None = None
    """The high-water mark of before fires to come were used up, or unwanted ones told ahead; ``None`` when none of them is still
    to come."""

    plan: FirePlan | None = None
    """``None`` when the planner must be asked."""

    active: tuple[Run, ...] = ()
    """Runs that were dispatched and are not final, detached ones included."""

    pause: Pause | None = None
    """Of a paused job."""

    holds: tuple[Hold, ...] = ()
    """Those over the job, the first first. While there is one, the job does not fire. The plan has the fires after the last."""

    tuning: Tuning | None = None
    """Of the plan that a job had before it was paused or held."""

    missed_until: datetime | None = None
    """As in ``PlanRequest``: set by a resume that lets the catch-up policy decide."""

    carried: tuple[CarriedFire, ...] = ()
    """Fires below the high-water mark that are decided at their target times, oldest first."""

    earlier: tuple[EarlierDefinition, ...] = ()
    """Definitions that runs of this state were decided under, oldest first. A run keeps its own for all its attempts."""

    waiting: tuple[Run, ...] = ()
    """Live fires and triggers that the overlap policy holds back, oldest first."""

    catch_up: tuple[Run, ...] = ()
    """Runs for missed fires, oldest first; before them the dead runs that are run again, in the order of the requests."""

    redriven: tuple[Redriven, ...] = ()
    """The last redrives, oldest first."""

    cancelling: tuple[str, ...] = ()
    """Active runs that were asked to end, by id."""

    runs_overlap: bool = False
    """Under ``allow``, one run has met another: from then on runs are detached, since inline ones would never drain."""

    next_catch_up_at: datetime | None = None
    """No catch-up run starts sooner: ``catch_up_rate``."""

    counts: JobCounts = JobCounts()
    last: Run | None = None
    """The run that ended last."""

    last_success_at: datetime | None = None
    last_missed_at: datetime | None = None
    trouble: str | None = None
    """As in ``JobRecord``."""

    expected: tuple[Expectation, ...] = ()
    """What is to happen by a time, or an alert is raised; only of jobs with such alerts."""

    outbox: MirrorBatch = MirrorBatch()
    """Records that the mirror has not confirmed."""

    answers: tuple[Answer, ...] = ()
    """The last hundred, oldest first."""

    logic: int = Field(default=LOGIC_VERSION, exclude=True)
    """Logic version of the workflow run that holds this state, which does not cross to the next one. Where a release decides
    otherwise when a timer is set, a run that an earlier one began goes on as it began."""


class JobInput(Value):
    """Input of ``JobWorkflow``."""

    logic_version: int = LOGIC_VERSION
    state: JobState = JobState()
    sleep_until: datetime | None = None
    """When the run was to begin; an update may have woken it earlier."""

    ahead_of: datetime | None = None
    """The fire that the run is woken ahead of, to sleep the rest on a timer; void where it was woken before ``sleep_until``."""

    mirrored: bool = False
    """The mirror has confirmed everything in ``state``."""

    send_again_at: datetime | None = None
    """The mirror takes no records at present, and is not tried sooner."""

    resumed: bool = False
    """The state was made from what the mirror knew, by a restore or a redrive: the job goes on, and does not begin."""
