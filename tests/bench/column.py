"""Who is compared."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Column(StrEnum):
    """A contender of the first table."""

    TIMERS = "timers"
    """Horarium, every gap slept on a timer."""

    LONG_SLEEP = "long_sleep"
    """Horarium, every gap slept as a continue-as-new with a backoff."""

    NATIVE = "native"
    """Temporal's Schedules as they come."""

    RAISED = "raised"
    """Temporal's Schedules with their limit of starts a second raised."""

    CHASM = "chasm"
    """Temporal's next generation of Schedules, off by default."""


TITLES: Final[Mapping[Column, str]] = {
    Column.TIMERS: "Horarium, timers",
    Column.LONG_SLEEP: "Horarium, long sleep",
    Column.NATIVE: "native",
    Column.RAISED: "native, limiter raised",
    Column.CHASM: "native, CHASM",
}

OURS: Final = (Column.TIMERS, Column.LONG_SLEEP)

DYNAMIC_CONFIG: Final[Mapping[Column, Mapping[str, str]]] = {
    Column.TIMERS: {},
    Column.LONG_SLEEP: {},
    Column.NATIVE: {},
    # 30 a second for each namespace by default.
    Column.RAISED: {"worker.schedulerNamespaceStartWorkflowRPS": "10000"},
    Column.CHASM: {
        "history.enableCHASMSchedulerCreation": "true",
        "history.chasmSchedulerCreationRolloutPercent": "100",
    },
}
"""What the server of a column is told, besides what all are."""
