"""What an HTTP target is told of the run's trace."""

from typing import Any

import httpx
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from activities.http_target import HttpRequest, headers_of
from tests.unit.test_log import attempt_of

URL = httpx.URL("http://bank.example/charge")

SPAN = NonRecordingSpan(SpanContext(0xAB, 0xCD, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)))


def sent(**fields: Any) -> dict[str, str]:
    """Headers of a request, by small names."""
    request = HttpRequest.model_validate({"url": str(URL)} | fields)
    headers = headers_of(request, attempt_of().run, url=URL, body=None)
    return {name.lower(): value for name, value in headers.items()}


def test_the_receiver_can_go_on_in_the_trace_of_the_run() -> None:
    """By the standard header; what the job sets itself stays, and without traces there is none."""
    assert "traceparent" not in sent()
    with trace.use_span(SPAN):
        assert sent()["traceparent"] == f"00-{0xAB:032x}-{0xCD:016x}-01"
        assert sent(headers={"Traceparent": "mine"})["traceparent"] == "mine"
