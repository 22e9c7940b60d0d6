"""What the owner of a job wants to be told of, and where. Values only; what follows from them is ``alert``."""

from datetime import datetime, timedelta
from enum import StrEnum

from workflows.target import SecretReference
from workflows.value import Value


class AlertKind(StrEnum):
    """What is told."""

    DEAD = "dead"
    """A run is dead."""

    MISSED = "missed"
    """More than ``missed_more_than`` fires were missed or dropped at once."""

    CATCH_UP = "catch_up"
    """More than ``catch_up_more_than`` fires are caught up at once, each by a run of its own or all by one."""

    LATE = "late"
    """A fire has not started within ``late_after`` of its target, or did so later than that."""

    NOT_FINISHED = "not_finished_by"
    """No run for a fire has succeeded within ``finish_within`` of its nominal time: not even if none ever started."""


class AlertRules(Value):
    """When a job raises an alert, and who is told."""

    url: str | SecretReference = ""
    """Empty: the tenant's (``HORARIUM_ALERT_URLS``), or the one that the installation has for all (``HORARIUM_ALERT_URL``)."""

    on: tuple[AlertKind, ...] = (AlertKind.DEAD, AlertKind.MISSED)
    missed_more_than: int = 0
    catch_up_more_than: int = 100
    late_after: timedelta | None = None
    finish_within: timedelta | None = None
    signature: SecretReference | None = None
    """Key of the HMAC in ``Horarium-Signature``."""


class Expectation(Value):
    """Something that is to have happened by a time, or an alert is raised. Kept in the job's state."""

    kind: AlertKind
    nominal: datetime
    """Of the fire."""

    due_at: datetime
    run_id: str | None = None
    """The run for that fire; ``None`` where none was started."""
