"""The door from workflow code to telemetry.

What is behind it is the worker's business: a worker without telemetry puts nothing there, and then none of this costs
anything. Nothing that comes through the door can change what a workflow does, and no command comes of it, so histories replay
the same with and without.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeAlias

from temporalio import workflow

from workflows.job_news import JobNews
from workflows.run import Run

HEAR_NEWS: Final = "horarium_hear_news"
"""External function of the sandbox: a ``NewsListener``."""

ENTER_ATTEMPT: Final = "horarium_enter_attempt"
"""External function of the sandbox: an ``AttemptScope``."""

NewsListener: TypeAlias = Callable[[JobNews], None]
"""Given news. Must not raise and must not wait."""

AttemptScope: TypeAlias = Callable[[str, Run], AbstractContextManager[None]]
"""Given tenant and run: whatever is started inside belongs to the run's current attempt."""


def is_listening() -> bool:
    """Say whether news are worth putting together: somebody listens, and this is no replay."""
    return HEAR_NEWS in workflow.extern_functions() and not workflow.unsafe.is_replaying()


def tell(news: JobNews | None) -> None:
    """Tell news to whoever listens, but in a replay: they were told then."""
    if news is not None and is_listening():
        hear: NewsListener = workflow.extern_functions()[HEAR_NEWS]
        hear(news)


def attempt_scope(*, tenant: str, run: Run) -> AbstractContextManager[None]:
    """Make what is started inside belong to the current attempt of a run."""
    enter: AttemptScope | None = workflow.extern_functions().get(ENTER_ATTEMPT)
    return nullcontext() if enter is None else enter(tenant, run)
