"""A collector for tests: receives OTLP over HTTP, as a real one does, and keeps what it got."""

import gzip
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as SpanStatus


@dataclass(frozen=True, kw_only=True)
class SeenSpan:
    """A span as the collector got it."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for the first span of a trace."""

    links: tuple[str, ...]
    """Ids of linked traces."""

    attributes: Mapping[str, str | int | float | bool]
    start: int
    """Nanoseconds since the epoch."""

    end: int
    failed: bool


class OtlpReceiver:
    """What was received."""

    def __init__(self, url: str) -> None:
        self.url = url
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""

        self._spans: dict[tuple[str, str], SeenSpan] = {}
        self._metrics: dict[str, set[str]] = {}

    def spans(self) -> list[SeenSpan]:
        """List all spans, by their start. One that was sent twice is one."""
        seen = [*self._spans.values()]  # at once: more may come meanwhile
        return sorted(seen, key=lambda span: (span.start, span.end))

    def trace(self, trace_id: str) -> list[SeenSpan]:
        """List the spans of a trace."""
        return [span for span in self.spans() if span.trace_id == trace_id]

    def metrics(self, service: str) -> set[str]:
        """Name the metrics that a service has sent."""
        return set(self._metrics.get(service, ()))

    def take(self, path: str, body: bytes) -> None:
        """Keep what was sent to a path."""
        if path == "/v1/traces":
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self._take_metrics(ExportMetricsServiceRequest.FromString(body))
        else:
            raise AssertionError(f"nothing should be sent to {path}")

    def _take_spans(self, sent: ExportTraceServiceRequest) -> None:
        for of_resource in sent.resource_spans:
            service = str(_read(of_resource.resource.attributes)["service.name"])
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    seen = _seen(span, service=service)
                    self._spans[seen.trace_id, seen.span_id] = seen

    def _take_metrics(self, sent: ExportMetricsServiceRequest) -> None:
        for of_resource in sent.resource_metrics:
            service = str(_read(of_resource.resource.attributes).get("service.name", ""))
            names = {metric.name for of_scope in of_resource.scope_metrics for metric in of_scope.metrics}
            self._metrics[service] = self._metrics.get(service, set()) | names


@contextmanager
def receiving() -> Iterator[OtlpReceiver]:
    """Receive for the length of the block, on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    receiver = _Handler.receivers[server.server_port] = OtlpReceiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    receivers: dict[int, OtlpReceiver] = {}
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, ThreadingHTTPServer)
        self.receivers[self.server.server_port].take(self.path, body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _seen(span: Span, *, service: str) -> SeenSpan:
    return SeenSpan(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=tuple(link.trace_id.hex() for link in span.links),
        attributes=_read(span.attributes),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == SpanStatus.StatusCode.STATUS_CODE_ERROR,
    )


def _read(attributes: Iterable[KeyValue]) -> dict[str, str | int | float | bool]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> str | int | float | bool:
    kind = value.WhichOneof("value")
    found: str | int | float | bool = getattr(value, kind) if kind else ""
    return found
