"""What every request meets before anything is understood: an id of its own, and limits on its line and headers."""

import re
import secrets
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.caller import REQUEST_ID
from api.error_response import problem_response
from api.problem import problem_of_status

REQUEST_ID_HEADER: Final = "X-Request-Id"

LINE_LIMIT: Final = 8_192
"""Bytes of path and query. Room for a cursor and every filter of a list."""

HEADER_LIMIT: Final = 16_384
"""Bytes of all headers. Proxies stop at about as much; what is more than 64 KiB is cut off by the HTTP server."""

_SANE: Final = re.compile(rb"[\x21-\x7e]{1,128}")


class Front:
    """Middleware, outermost but for what counts and traces requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; its answer bears its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id_of(scope)
        REQUEST_ID.set(request_id)

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        refusal = _refusal_of(scope)
        if refusal is None:
            await self._app(scope, receive, send_marked)
        else:
            status, detail = refusal
            await problem_response(problem_of_status(status, detail=detail))(scope, receive, send_marked)


def _request_id_of(scope: Scope) -> str:
    """Take the id that the caller gave, if it can be one, or make one."""
    given = [value for name, value in scope["headers"] if name == b"x-request-id"]
    if len(given) == 1 and _SANE.fullmatch(given[0]):
        return str(given[0].decode("ascii"))
    return f"req_{secrets.token_hex(12)}"


def _refusal_of(scope: Scope) -> tuple[int, str] | None:
    if len(scope["raw_path"] or b"") + len(scope["query_string"]) > LINE_LIMIT:
        return 414, f"path and query may have {LINE_LIMIT} bytes"
    if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_LIMIT:
        return 431, f"all headers together may have {HEADER_LIMIT} bytes"
    return None
