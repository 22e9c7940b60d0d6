"""Which other sites may ask the codec endpoint, from a browser: Temporal's Web UI, and none else."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.access import CODEC

_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")

PREFLIGHT_LASTS: Final = 600
"""Seconds that a browser remembers the answer."""


class CodecOrigins:
    """Middleware that answers browsers for the codec endpoint alone."""

    def __init__(self, app: ASGIApp, *, ui_url: str | None) -> None:
        self._app = app
        self._codec = CORSMiddleware(
            app,
            allow_origins=origins_of(ui_url),
            allow_methods=["POST"],
            allow_headers=["Authorization", "Content-Type", "X-Namespace"],
            allow_credentials=True,
            max_age=PREFLIGHT_LASTS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        is_codec = scope["type"] == "http" and scope["path"].startswith(f"{CODEC}/")
        await (self._codec if is_codec else self._app)(scope, receive, send)


def origins_of(ui_url: str | None) -> Sequence[str]:
    """List the origins of the Web UI. One on this machine has several names."""
    if ui_url is None:
        return ()
    parts = urlsplit(ui_url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    port = "" if parts.port is None else f":{parts.port}"
    names = _LOOPBACK if host in _LOOPBACK else (host,)
    return tuple(f"{parts.scheme}://{name}{port}" for name in names)
