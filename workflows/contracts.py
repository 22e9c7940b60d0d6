"""What the pieces call each other by: ids, queues, search attributes, and activity names with their types.

Everything that two processes must spell alike is built here and nowhere else.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.common import SearchAttributeKey

LOGIC_VERSION: Final = 5
"""Raised at continue-as-new only; one line a version below.

1: the first.
2: no timer shortly before that of a fire; pauses of an absent mirror differ from job to job (``workflows/logic.py``).
3: plans that have grown old are asked for again between fires, and only where something could have changed.
4: a job that was told several things waits a moment for more before its long sleep.
5: a job asks once more before it is deleted, and waits for a planner that does not answer; fires put aside are missed together.
"""

SCHEDULER_TASK_QUEUE: Final = "horarium-scheduler"
"""Our own ordinary activities. Apart from the job queue, so that a worker without job code can serve it."""

JOB_WORKFLOW: Final = "HorariumJob"
RUN_WORKFLOW: Final = "HorariumRun"
RECORDS_WORKFLOW: Final = "HorariumRecords"
DOWNSTREAM_WORKFLOW: Final = "HorariumDownstream"
BULK_REDRIVE_WORKFLOW: Final = "HorariumBulkRedrive"
ALERT_WORKFLOW: Final = "HorariumAlert"
HOLD_WORKFLOW: Final = "HorariumHold"
UPKEEP_WORKFLOW: Final = "HorariumUpkeep"

UPKEEP_WORKFLOW_ID: Final = "upkeep"
"""The same for all processes, so that one at a time looks after the mirror of a namespace."""
BACKFILL_WORKFLOW: Final = "HorariumBackfill"

JOB_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

TENANT_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""No slash, so that no two jobs of any tenants share a workflow."""

PLAN_FIRES: Final = "plan_fires"
"""Local activity: ``PlanRequest -> FirePlan``."""

SURVEY_FIRES: Final = "survey_fires"
"""Local activity: ``SurveyRequest -> FireSurvey``. What lies between two moments, before a change or at the end of a pause."""

LIST_FIRES: Final = "list_fires"
"""Local activity: ``FireListRequest -> FireList``. The next fires of a backfill."""

RECORD_EVENTS: Final = "record_events"
"""``MirrorBatch -> None``: as a local activity on the way, as an ordinary one for what is late.

Raises when the mirror did not take it.
"""

MIRROR_UNAVAILABLE: Final = "MirrorUnavailable"
"""Error type of ``RECORD_EVENTS``: the records may not be written; sending them again later is right."""

MIRROR_REFUSED: Final = "MirrorRefused"
"""Error type of ``RECORD_EVENTS``: the database can never hold one of the records; the others are written."""

HTTP_REQUEST: Final = "http_request"
"""Job activity: the attempt of a job with an ``http`` target. On every queue that our own workers run jobs of."""

OBSERVE_ATTEMPT: Final = "observe_attempt"
"""Ordinary activity: ``ObserveRequest -> Observation``. What Temporal knows about an attempt that has not answered."""

SEND_ALERT: Final = "send_alert"
"""Ordinary activity: ``Alert -> None``. Fails while the receiver does not take it."""

REDRIVE_MANY: Final = "redrive_many"
"""Ordinary activity: ``BulkRequest -> BulkProgress``."""

SPREAD_HOLD: Final = "spread_hold"
"""Ordinary activity: ``HoldOrder -> HoldProgress``."""

SIGNAL_SPREAD: Final = "spread"
"""To the workflow of a hold: look at the jobs once more."""
RECONCILE_MIRROR: Final = "reconcile_mirror"
"""Ordinary activity: ``-> ReconcileReport``."""

PURGE_MIRROR: Final = "purge_mirror"
"""Ordinary activity: ``-> PurgeReport``."""

ADMIT_FIRES: Final = "admit_fires"
"""Ordinary activity: ``AdmitRequest -> AdmitReport``. Asks a job to run fires of a backfill, and looks at those that it runs."""

PROGRESS_MEMO: Final = "progress"
"""Memo of a bulk redrive: its ``BulkProgress``."""

RECORD_TIMEOUT: Final = timedelta(minutes=3)
"""For records sent by an ordinary activity, which delays nothing: a database may take seconds for each answer."""

RECORD_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)
"""Records whose worker died with them are sent again so soon."""

OBSERVE_TIMEOUT: Final = timedelta(seconds=10)
"""For a look at an attempt. Another one follows."""

ADMIT_ATTEMPT: Final = "admit_attempt"
"""Local activity, for jobs with a downstream and for starts of catch-up runs only: ``AdmissionRequest -> Admission``."""

NOTE_ATTEMPT: Final = "note_attempt"
"""Local activity, for jobs with a downstream only: ``AttemptNotice -> Verdict``."""

OUR_ACTIVITIES: Final = frozenset(
    {PLAN_FIRES, SURVEY_FIRES, LIST_FIRES, RECORD_EVENTS, OBSERVE_ATTEMPT, ADMIT_ATTEMPT, NOTE_ATTEMPT, HTTP_REQUEST}
)
"""What our workers run beside job code: no function of a team has one of these names, and no job calls one by it."""

UPDATE_ASK_PROBE: Final = "ask_probe"
UPDATE_END_PROBE: Final = "end_probe"
UPDATE_RESET_BREAKER: Final = "reset"
UPDATE_REGISTER: Final = "register"
UPDATE_DELETE: Final = "delete"
UPDATE_REDRIVE: Final = "redrive"
"""``RedriveCommand -> RedriveAnswer``. Refused as ``BUSY`` while many wait already."""

UPDATE_BACKFILL: Final = "backfill"
"""``BackfillCommand -> BackfillAnswer``, to a job."""

UPDATE_CHANGE: Final = "change"
UPDATE_PAUSE: Final = "pause"
UPDATE_RESUME: Final = "resume"
UPDATE_HOLD: Final = "hold"
UPDATE_RELEASE: Final = "release"
UPDATE_TRIGGER: Final = "trigger"
"""``TriggerCommand -> TriggerAnswer``. Refused as ``BUSY`` while many payloads of triggers are held already."""

UPDATE_PAUSE_BACKFILL: Final = "pause_backfill"
UPDATE_RESUME_BACKFILL: Final = "resume_backfill"
UPDATE_CANCEL_BACKFILL: Final = "cancel_backfill"
"""These three ``SteerBackfill -> BackfillRecord``, to a backfill."""

UPDATE_CANCEL_RUN: Final = "cancel_run"
"""``CancelCommand -> MirrorBatch``: the job, and the run where it was not final."""

UPDATE_SHOW: Final = "show"
"""``ShowCommand -> MirrorBatch``: the job as it stands. Changes nothing about it."""

REVISION_MISMATCH: Final = "RevisionMismatch"
"""Error type of a refused update: the job has another revision than its caller saw."""

INVALID_SCHEDULE: Final = "InvalidSchedule"
"""Error type of the planner's answer to a schedule that means nothing to its release. Asking again does not help."""

BUSY: Final = "Busy"
"""Error type of a refused update: the same request may be taken later."""

SIGNAL_RUN_ENDED: Final = "run_ended"
"""``Run``: what a detached run reports to its job, and to its backfill if it has one."""

SA_JOB: Final = SearchAttributeKey.for_keyword("HorariumJob")
SA_TENANT: Final = SearchAttributeKey.for_keyword("HorariumTenant")
SA_TARGET: Final = SearchAttributeKey.for_keyword("HorariumTarget")
SA_STATE: Final = SearchAttributeKey.for_keyword("HorariumState")
SA_NEXT_FIRE: Final = SearchAttributeKey.for_datetime("HorariumNextFire")
SA_LAST_OUTCOME: Final = SearchAttributeKey.for_keyword("HorariumLastOutcome")
SA_MISSED: Final = SearchAttributeKey.for_int("HorariumMissed")

SEARCH_ATTRIBUTES: Final = (SA_JOB, SA_TENANT, SA_TARGET, SA_STATE, SA_NEXT_FIRE, SA_LAST_OUTCOME, SA_MISSED)

LOCAL_ACTIVITY_TIMEOUT: Final = timedelta(milliseconds=500)
"""A local activity holds its workflow task open, and with it every command of the task."""

ADMISSION_TIMEOUT: Final = timedelta(seconds=1.5)
"""For what is asked of a downstream's breaker, which may have to ask Temporal twice. An answer that came too late to be heard
would let an attempt through, or count one, as if there were no breaker: of a starved process, one after the other."""

WORKFLOW_TASK_TIMEOUT: Final = timedelta(seconds=2)
"""A task lost under cache starvation made a fire 8 s late with the server's default of 10 s."""


def job_workflow_id(*, tenant: str, job_id: str) -> str:
    """Name the workflow of a job. Neither part may contain a slash, so no two jobs share a name."""
    return f"job/{tenant}/{job_id}"


def named_job(workflow_id: str) -> tuple[str, str] | None:
    """Read tenant and job id out of the name of a job's workflow; ``None`` for any other."""
    kind, *parts = workflow_id.split("/")
    return (parts[0], parts[1]) if kind == "job" and len(parts) == 2 else None


def run_workflow_id(*, tenant: str, run_id: str) -> str:
    """Name the workflow of a detached run."""
    return f"run/{tenant}/{run_id}"


def attempt_workflow_id(*, tenant: str, run_id: str, attempt: int) -> str:
    """Name the workflow that is an attempt of a run with a workflow target."""
    return f"attempt/{tenant}/{run_id}/{attempt}"


def records_workflow_id(*, tenant: str, job_id: str, version: int) -> str:
    """Name the workflow that carries a backlog of records, by the version of the last of them."""
    return f"records/{tenant}/{job_id}/{version}"


def bulk_redrive_workflow_id(*, tenant: str, redrive_id: str) -> str:
    """Name the workflow of a bulk redrive."""
    return f"redrive/{tenant}/{redrive_id}"


def hold_workflow_id(*, tenant: str, hold_id: str) -> str:
    """Name the workflow that tells jobs of a hold, or of its end."""
    return f"hold/{tenant}/{hold_id}"


def backfill_workflow_id(*, tenant: str, job_id: str, backfill_id: str) -> str:
    """Name the workflow of a backfill."""
    return f"backfill/{tenant}/{job_id}/{backfill_id}"


def alert_workflow_id(*, tenant: str, alert_id: str) -> str:
    """Name the workflow that delivers an alert; one alert has one."""
    return f"alert/{tenant}/{alert_id}"


def downstream_workflow_id(*, tenant: str, downstream: str) -> str:
    """Name the workflow of a downstream's open breaker."""
    return f"downstream/{tenant}/{downstream}"


def named_downstream(workflow_id: str) -> tuple[str, str]:
    """Read tenant and downstream out of the name of an open breaker's workflow."""
    _, tenant, downstream = workflow_id.split("/", 2)
    return tenant, downstream


def scheduled_run_id(*, job_id: str, nominal: datetime) -> str:
    """Name a scheduled or catch-up run. One nominal time has one name, which is what makes a second run impossible."""
    return f"{job_id}:{nominal.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def requested_run_id(*, job_id: str, kind: str, request_id: str) -> str:
    """Name a manual, backfill or redriven run by the request that asked for it."""
    return f"{job_id}:{kind}-{request_id}"
