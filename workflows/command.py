"""What workflows are told: arguments of the control updates, and the input of a detached run.

Every command carries the idempotency key of the request behind it: the job keeps its last answers by key, so a repeated
command changes nothing and is answered as before.
"""

from datetime import timedelta

from workflows.alert_rule import AlertRules
from workflows.contracts import LOGIC_VERSION
from workflows.job import DEFAULT_TENANT, JobDefinition, JobState, MirrorBatch
from workflows.run import Run
from workflows.value import Value


class RegisterCommand(Value):
    """Argument of ``UPDATE_REGISTER``, answered by a ``JobRecord``.

    Begins the job anew in the workflow of a deleted one that still drains. One that is there refuses: ``Conflict``.
    """

    key: str = ""
    state: JobState = JobState()
    """What a new workflow would have been started with."""


class DeleteCommand(Value):
    """Argument of ``UPDATE_DELETE``, answered by a ``JobRecord``: fire no more."""

    key: str = ""
    cancel_active: bool = False
    """Cancel the runs that are not final, rather than let them end."""


class RedriveCommand(Value):
    """Argument of ``UPDATE_REDRIVE``, answered by a ``RedriveAnswer``: run a dead run again."""

    key: str = ""
    """The name of the redrive too: whoever asks for the same one asks for nothing new."""

    run_id: str = ""
    """Of the redrive; made from that of the dead run."""

    dead: Run
    """As the mirror shows it: the job itself has forgotten it."""


class RedriveAnswer(Value):
    """A redrive that was taken on, now or before."""

    run_id: str = ""
    rows: MirrorBatch = MirrorBatch()
    """The job, and the dead run and its redrive where the mirror may not have them yet."""


class RunInput(Value):
    """Input of ``RunWorkflow``: one run that its job has handed over, its first attempt numbered and fenced."""

    logic_version: int = LOGIC_VERSION
    tenant: str = DEFAULT_TENANT
    job_id: str = ""
    definition: JobDefinition = JobDefinition()
    run: Run
    version: int = 0
    """Of the last record made of the job; those of the run go on from here."""

    unsent: MirrorBatch = MirrorBatch()
    """Records that the mirror had not confirmed when the run continued as new."""

    alerts: AlertRules | None = None
    """Those in force when the run was handed over."""

    told_late: bool = False
    """It was told that the run has not begun in time."""

    visible_after: timedelta = timedelta(seconds=2)
    history_limit: int = 400
    paces_catch_up: bool = False
    fairness_weight: float = 1.0
    """These four as in ``Tuning``."""
