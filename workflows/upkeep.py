"""What the upkeep of the mirror is told, and goes on from."""

from datetime import datetime

from workflows.value import Value


class UpkeepInput(Value):
    """Input of ``UpkeepWorkflow``."""

    purged_at: datetime | None = None
    """When old history was last forgotten."""
