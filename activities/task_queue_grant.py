"""Which task queues the jobs of a tenant may name. Pure.

A grant is a pattern, such as ``reports`` or ``team-a-*``. A queue that is granted to anybody is for those alone to whom it is; a
tenant with grants names no others. The default queue is everybody's.
"""

import re
from collections.abc import Collection, Mapping

from workflows.target import DEFAULT_TASK_QUEUE


def is_match(pattern: str, task_queue: str) -> bool:
    """Say whether a pattern means a queue; ``*`` stands for any characters, also for none."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), task_queue, re.DOTALL) is not None


def refusal_of(task_queue: str, grants: Mapping[str, Collection[str]], *, tenant: str) -> str | None:
    """Say why the jobs of a tenant may not name a queue; ``None`` where they may. ``grants`` are those of all tenants."""
    own = sorted(grants.get(tenant, ()))
    if task_queue == DEFAULT_TASK_QUEUE or any(is_match(pattern, task_queue) for pattern in own):
        return None
    if own:
        return f"the jobs of this tenant may name the task queues {', '.join([*own, DEFAULT_TASK_QUEUE])}"
    if any(is_match(pattern, task_queue) for patterns in grants.values() for pattern in patterns):
        # Whose it is, is nobody else's business.
        return "this task queue is another tenant's"
    return None
