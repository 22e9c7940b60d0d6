"""Workers with one thing set otherwise: what that changes, to be seen beside the worker as it comes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.bench.column import TITLES, Column
from tests.bench.measure import Load, Tell, measure_burst, measure_cost, warm_up
from tests.bench.result import Knob
from tests.bench.stand import standing

T, L = Column.TIMERS, Column.LONG_SLEEP

DEFAULT: Final = "as it comes"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One thing that is set otherwise; nothing, for the worker that the others are compared with."""

    name: str = DEFAULT
    value: str = ""
    column: Column = T
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the worker's environment."""

    altered: str = ""
    """For ``tests.bench.altered_worker``: what is no setting and is altered in the code."""

    @property
    def title(self) -> str:
        """For the table."""
        return f"{TITLES[self.column]}: {self.name} {self.value}".rstrip()


def _set(name: str, value: int, column: Column = T) -> Setting:
    return Setting(name=name, value=str(value), column=column, settings={name: str(value)})


def _switch(name: str, column: Column = T) -> Setting:
    return Setting(name=name, value="on", column=column, settings={name: "true"})


def _alter(name: str, value: str, column: Column = T) -> Setting:
    return Setting(name=name, value=value, column=column, altered=f"{name}={value}")


KNOBS: Final = (
    Setting(),
    _set("batch_size", 1),
    _set("batch_size", 50),
    _set("history_limit", 100),
    _set("history_limit", 1600),
    _set("workflow_task_slots", 10),
    _set("workflow_task_slots", 100),
    _set("job_slots", 10),
    _alter("pollers", "scaling"),
    _alter("sticky_timeout", "10s"),
    _alter("contexts", "asked"),
    _alter("converter", "pydantic"),
    _alter("encryption", "on"),
    _alter("loop", "asyncio"),
    _alter("garbage", "everything"),
    _switch("workflow_sandbox"),
    _switch("temporal_compression"),
    Setting(column=L),
    _set("batch_size", 1, L),
    _set("workflow_task_slots", 100, L),
    _alter("contexts", "asked", L),
    _alter("encryption", "on", L),
    _switch("workflow_sandbox", L),
)
"""The threshold between the two sleeps is the difference between the two columns as they come."""


async def measure_knob(setting: Setting, tell: Tell, *, burst: int, load: Load) -> Knob:
    """Measure a burst and a steady load."""
    async with standing(setting.column, altered=setting.altered, **setting.settings) as stand:
        await warm_up(stand)
        drained = await measure_burst(stand, burst, tell)
        cost, _ = await measure_cost(stand, load, tell)
    return Knob(name=setting.name, value=setting.value, column=setting.column, cost=cost, burst=drained)
