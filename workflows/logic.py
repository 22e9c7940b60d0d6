"""What runs of a job that an earlier release began go on to do as it did, until they continue as new.

Pure. A replay of their histories must set the same timers, ask the planner the same, and start the same runs in the same order.
"""

from typing import Final

from workflows.job import JobState

PRESENT_RULES_SINCE: Final = 2
"""Logic version. Under the first, timers were set shortly before those of fires, an absent mirror was tried every ten seconds,
what the catch-up lane had a place for started after the fires of its moment, and the planner was asked for jobs used up."""


def decides_as_now(state: JobState) -> bool:
    """Say whether the workflow run that holds a state was begun under the present rules."""
    return state.logic >= PRESENT_RULES_SINCE
