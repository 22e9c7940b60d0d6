"""Which scope each route needs, and the gate through which every request goes.

A route that nobody thought of here needs a key: reading needs ``read``, everything else ``write``. The few that are open, and the
actions of operators, are named.
"""

from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from activities.api_key import Scope
from api.caller import CALLER, NOBODY, Caller
from api.key_ring import KeyRing
from api.problem import CrossSiteRequest, Forbidden
from api.request import asked_host, is_of_another_site
from api.server_address import may_be_lent

PREFIX: Final = "/api/v1"

CODEC: Final = "/codec"
"""Where Temporal's Web UI has its payloads decrypted."""

CODEC_COOKIE: Final = "horarium_key"
"""There, and there alone, an API key may come in a cookie."""

_OPEN: Final = frozenset(
    {
        "/healthz",
        "/readyz",
        f"{PREFIX}/healthz",
        f"{PREFIX}/readyz",
        f"{PREFIX}/docs",
        "/docs",
        "/openapi.json",
        CODEC,
        f"{CODEC}/key",
    }
)
"""They tell nothing of any tenant. The documentation is the same for everybody who has this release."""

_READS: Final = frozenset({f"{PREFIX}/preview", f"{CODEC}/decode"})
"""Asked by POST, for they have a body, and change nothing."""

_ADMINISTERS: Final = frozenset({f"{PREFIX}/audit"})

_ACTIONS: Final = frozenset(
    {"pause", "resume", "trigger", "cancel", "backfills", "redrive", "hold", "release", "reset"}
)
"""What operators do with what exists: the last word of a path that is sent by POST."""

_OPERATED: Final = frozenset({f"{PREFIX}/holds", f"{PREFIX}/holds/{{hold_id}}"})
"""Holds are made and ended by operators, whatever the method."""


def needed_scope(method: str, path: str) -> Scope | None:
    """Say what a route needs, by its method and the template of its path; ``None`` where no key is needed."""
    if path in _OPEN:
        return None
    if path == "/metrics":
        return Scope.METRICS
    if path in _ADMINISTERS:
        return Scope.ADMIN
    if method in ("GET", "HEAD") or path in _READS:
        return Scope.READ
    is_action = path in _OPERATED or (method == "POST" and not _ACTIONS.isdisjoint(path.split("/")))
    return Scope.OPERATE if is_action else Scope.WRITE


async def admit(request: Request) -> Caller:
    """Let a request in, and say who sends it.

    Raises:
        Unauthorized: it has no key that is good.
        Forbidden: its key is not good for this.
        CrossSiteRequest: there are no keys, and a page of another site asks for a change, or by a name of its own.
        Unavailable: nobody knows at the moment.
    """
    route = request.scope.get("route")
    assert isinstance(route, APIRoute)
    needed = needed_scope(request.method, route.path_format)
    if needed is None:
        return NOBODY
    ring: KeyRing = request.app.state.key_ring
    caller = await ring.identify(_credentials_in(request, path=route.path_format), now=datetime.now(UTC))
    if not caller.may(needed):
        raise Forbidden(needed)
    if caller.key is None:
        _require_own_site(request, path=route.path_format)
    CALLER.set(caller)
    return caller


def _require_own_site(request: Request, *, path: str) -> None:
    """See that no page of another site has a browser ask, where no key tells the two apart.

    Such a page says whose it is when it asks for a change; the codec says by itself who may ask it. One whose own name leads
    here for now (DNS rebinding) passes for ours in every way but that name. Raises ``CrossSiteRequest``.
    """
    host = asked_host(request)
    if may_be_lent(host):
        raise CrossSiteRequest(
            f"Host: {host!r} may be a name of another site; without an API key, ask localhost or an address"
        )
    is_change = request.method not in ("GET", "HEAD") and not path.startswith(f"{CODEC}/")
    if is_change and is_of_another_site(request):
        raise CrossSiteRequest("Sec-Fetch-Site or Origin: a page of another site may change nothing without an API key")


def _credentials_in(request: Request, *, path: str) -> list[str]:
    """List what the request shows as its key, as the header has it."""
    headers = request.headers.getlist("authorization")
    cookie = request.cookies.get(CODEC_COOKIE)
    if headers or cookie is None or not path.startswith(f"{CODEC}/"):
        return headers
    return [f"Bearer {cookie}"]


async def _tenant_of(caller: Annotated[Caller, Depends(admit)]) -> str:
    return caller.tenant


Tenant: TypeAlias = Annotated[str, Depends(_tenant_of)]
"""Whose things a request is about. There is no way to ask for another tenant's."""
