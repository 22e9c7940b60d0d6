"""Arguments of the control updates.

Every command carries the idempotency key of the request behind it: the job keeps its last answers by key, so a repeated
command changes nothing and is answered as before.
"""

from workflows.job import JobState
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
