"""Claims in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import settings

from horarium.effect import EffectStore
from horarium.effect_memory import MemoryEffectStore
from tests.effect_claims import ClaimMachine


class MemoryMachine(ClaimMachine):
    """A store whose clock is the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryEffectStore(lambda: self.now)

    def ask(self, call: Callable[[EffectStore], Coroutine[Any, Any, Any]]) -> Any:
        """Ask it, in a loop that needs none."""
        return asyncio.run(call(self.store))


TestClaims = MemoryMachine.TestCase
"""The three-way rule, and the rule of the fence, hold in any order of events."""
TestClaims.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
