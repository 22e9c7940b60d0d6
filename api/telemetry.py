"""The API's own share of telemetry: ``/metrics`` on its port, and what FastAPI is to tell of requests.

FastAPI makes a span of each request, in the caller's trace where there is one, and times it; the calls to Temporal are made
spans of by their client.
"""

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.telemetry import TelemetryConfig

from workers.metrics_endpoint import CONTENT_TYPE, PATH
from workers.telemetry import Telemetry

ASKED_BY_MACHINES: Final = frozenset({PATH, "/healthz", "/readyz"})
"""All day, and of no interest by themselves."""

metrics_router = APIRouter()


@metrics_router.get(PATH, include_in_schema=False)
async def read_metrics(request: Request) -> Response:
    """Say what this process counts and how the installation stands, for Prometheus."""
    telemetry: Telemetry = request.app.state.telemetry
    # In a thread, because what gauges ask is answered by this event loop.
    body = b"" if telemetry.page is None else await asyncio.to_thread(telemetry.page.render)
    return Response(body, headers={"Content-Type": CONTENT_TYPE})


def _is_asked_by_machine(scope: MutableMapping[str, Any]) -> bool:
    return scope["path"] in ASKED_BY_MACHINES


REQUEST_TELEMETRY: Final[TelemetryConfig] = {
    # They would hold what was sent, and the text of errors.
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
    "exclude": _is_asked_by_machine,
}
