"""Who sent the request that is being answered, for whoever has to know without being told by each function on the way."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from activities.api_key import ApiKey, Scope
from workflows.job import DEFAULT_TENANT

ANONYMOUS: Final = "anonymous"
ITSELF: Final = "horarium"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks, and for whom."""

    tenant: str = DEFAULT_TENANT
    key: ApiKey | None = None
    """``None``: there are no keys yet, and the caller is on this machine."""

    @property
    def actor(self) -> str:
        """How the audit log calls the caller."""
        if self.key is not None:
            return self.key.key_id
        return ANONYMOUS if REQUEST_ID.get() else ITSELF

    @property
    def name(self) -> str:
        """What people call the caller."""
        return "" if self.key is None else self.key.name

    def may(self, needed: Scope) -> bool:
        """Say whether the caller may do what needs a scope."""
        return self.key is None or self.key.scope.allows(needed)


NOBODY: Final = Caller()
"""Whoever is on this machine, as long as there are no keys."""

# Each request is answered in a context of its own, so one that is waited for does not see the next one's.
CALLER: ContextVar[Caller] = ContextVar("horarium_caller", default=NOBODY)
# Empty where the service does something by itself.
REQUEST_ID: ContextVar[str] = ContextVar("horarium_request_id", default="")
