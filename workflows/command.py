"""What workflows are told: arguments of the control updates, and the input of a detached run.

Every command carries the idempotency key of the request behind it: the job keeps its last answers by key, so a repeated
command changes nothing and is answered as before. Those of holds change nothing when they come again, and are not kept.
"""

from datetime import datetime, timedelta

from workflows.alert_rule import AlertRules
from workflows.contracts import LOGIC_VERSION
from workflows.job import (
    DEFAULT_TENANT,
    Hold,
    JobDefinition,
    JobState,
    MirrorBatch,
    OverlapPolicy,
    Pause,
    PausedFires,
    Triggered,
)
from workflows.run import PayloadOverride, Run
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

    expected: int | None = None
    """Only this revision; ``None``: any."""


class ChangeCommand(Value):
    """Argument of ``UPDATE_CHANGE``, answered by a ``JobRecord``: replace the definition, and pause or resume with it.

    Refused as ``REVISION_MISMATCH`` where the job has another revision than ``expected``, and as ``INVALID_SCHEDULE`` where
    ``one_fire`` has passed.
    """

    key: str = ""
    definition: JobDefinition = JobDefinition()
    one_fire: datetime | None = None
    """The nominal time of a new schedule that fires once, as the front door has found it by its own clock."""

    enabled: bool | None = None
    """``None``: paused or not, it stays as it is."""

    expected: int | None = None
    """``None``: any revision may be replaced."""

    holds: tuple[Hold, ...] | None = None
    """Those over the job from now on; ``None``: as before."""


class PauseCommand(Value):
    """Argument of ``UPDATE_PAUSE``, answered by a ``JobRecord``. Of a paused job, the reason and the expiry are replaced."""

    key: str = ""
    pause: Pause
    """Begins when it is carried out, whatever its own time says."""

    expected: int | None = None


class ResumeCommand(Value):
    """Argument of ``UPDATE_RESUME``, answered by a ``JobRecord``. Changes nothing of a job that is not paused."""

    key: str = ""
    catch_up: PausedFires = PausedFires.NONE
    expected: int | None = None


class HoldCommand(Value):
    """Argument of ``UPDATE_HOLD``, answered by a ``JobRecord``: fire no more until the hold is over.

    Changes nothing of a job that carries it, or when it is over already.
    """

    key: str = ""
    hold: Hold


class ReleaseCommand(Value):
    """Argument of ``UPDATE_RELEASE``, answered by a ``JobRecord``. Changes nothing of a job that does not carry the hold."""

    key: str = ""
    hold_id: str = ""
    catch_up: PausedFires = PausedFires.NONE
    """What becomes of the fires that fell into it."""


class TriggerCommand(Value):
    """Argument of ``UPDATE_TRIGGER``, answered by a ``TriggerAnswer``: run the job now."""

    key: str = ""
    request_id: str = ""
    """Names the run."""

    override: PayloadOverride | None = None
    overlap: OverlapPolicy | None = None
    """Instead of the job's own policy, for this run."""

    skip_next: bool = False
    """The run takes the place of the next fire. Without one: refused."""


class TriggerAnswer(Value):
    """A trigger that was carried out, now or before."""

    triggered: Triggered = Triggered()
    rows: MirrorBatch = MirrorBatch()
    """The job and the run, where the mirror may not have them yet."""


class CancelCommand(Value):
    """Argument of ``UPDATE_CANCEL_RUN``, answered by a ``MirrorBatch``. Changes nothing of a run that is final."""

    key: str = ""
    run_id: str = ""
    reason: str = ""


class ShowCommand(Value):
    """Argument of ``UPDATE_SHOW``, answered by a ``MirrorBatch``: tell how the job stands."""

    above: int = 0
    """Version of the row that the mirror has; those of the answer are higher, whatever clock gave the row its own."""


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
