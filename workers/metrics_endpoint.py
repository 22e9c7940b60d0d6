"""``/metrics`` in the text format of Prometheus: our own metrics, those of the process, and those of the Temporal library.

The library's core serves its metrics itself, on a port of the loopback address that nobody needs to know; here they are put
behind ours, so that a process has one address. Served from a thread, so that a busy event loop does not hide how busy it is.
"""

import http.client
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from temporalio.runtime import PrometheusConfig

from workers.settings import Ports

logger = logging.getLogger(__name__)

PATH: Final = "/metrics"

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LOOPBACK: Final = "127.0.0.1"

CORE_PATIENCE: Final = 2.0
"""Seconds. It answers within milliseconds, or the process is in trouble, and then the other metrics should say so."""


CLOSES_WITHIN: Final = 0.1
"""Seconds."""


class MetricsPage:
    """Puts together what ``/metrics`` says."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.reader = PrometheusMetricReader(registry=self._registry, scope_info_enabled=False)
        """Where a ``MeterProvider`` puts its metrics."""

        self._core_port: int | None = None

    def include_core(self) -> PrometheusConfig:
        """Say how a Temporal runtime is to serve its metrics, so that they are included here."""
        with socket.create_server((LOOPBACK, 0)) as probe:
            port: int = probe.getsockname()[1]
        self._core_port = port
        return PrometheusConfig(
            bind_address=f"{LOOPBACK}:{port}",
            counters_total_suffix=True,
            unit_suffix=True,
            durations_as_seconds=True,
        )

    def render(self) -> bytes:
        """Write everything. May wait for what gauges ask; not for the event loop's own thread."""
        return generate_latest(self._registry) + self._read_core()

    def _read_core(self) -> bytes:
        if self._core_port is None:
            return b""
        connection = http.client.HTTPConnection(LOOPBACK, self._core_port, timeout=CORE_PATIENCE)
        try:
            connection.request("GET", PATH)
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            logger.warning("the metrics of the Temporal library cannot be read", extra={"error": str(error)})
            return b""
        finally:
            connection.close()


class MetricsServer:
    """Serves a page until it is closed."""

    def __init__(self, page: MetricsPage, *, host: str, ports: Ports) -> None:
        """Listen. Raises ``OSError`` where no port of the range is free."""
        self._server = _listen(page, host, ports)
        threading.Thread(target=self._server.serve_forever, args=(CLOSES_WITHIN,), name="metrics", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is found."""
        host, port = self._server.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{name}:{port}{PATH}"

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    page: MetricsPage

    def server_bind(self) -> None:
        """Bind, without asking anybody for the machine's name."""
        TCPServer.server_bind(self)


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == PATH:
            self._answer(HTTPStatus.OK, self.server.page.render(), CONTENT_TYPE)
        else:
            self._answer(HTTPStatus.NOT_FOUND, f"only {PATH} is here\n".encode(), "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a scrape is no event."""


def _listen(page: MetricsPage, host: str, ports: Ports) -> _Server:
    kind = _ServerV6 if ":" in host else _Server
    for port in range(ports.first, ports.last + 1):
        try:
            server = kind((host, port), _Handler)
        except OSError:
            if port == ports.last:
                raise
        else:
            server.page = page
            return server
    raise AssertionError("a range has a last port")
