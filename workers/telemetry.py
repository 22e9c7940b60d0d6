"""What a process tells about itself: metrics, traces, and where both go.

Everything is off until it is asked for: ``HORARIUM_METRICS_PORT`` serves metrics to Prometheus, the variables of
OpenTelemetry (see ``otel``) send metrics and traces. A worker without either has nothing of this on the path of a fire.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.util.re import parse_env_headers
from temporalio.client import Client
from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider, create_tracer_provider
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    OpenTelemetryConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
)
from temporalio.worker import Interceptor

from activities.admission import Admissions
from activities.database import Limits, open_database
from activities.mirror_survey import MirrorSurveyor
from activities.mirror_writer import MirrorWriter
from activities.upkeep import Upkeep
from workers.metric import METER, JobMetrics, show_build, watch_downstreams, watch_mirror, watch_upkeep
from workers.metrics_endpoint import MetricsPage, MetricsServer
from workers.news import Listener, NewsInterceptor
from workers.otel import Signal, describe_process, exporter_names, load_exporters, otlp_endpoint, protocol_of
from workers.run_trace import RunTracer, WantedIds
from workers.settings import InvalidSettings, Settings, variable_of
from workers.state_gauge import InstallationLook, LastingSnapshot, show_state

logger = logging.getLogger(__name__)

SURVEY_LIMIT: Final = timedelta(seconds=2)
"""For a look at all jobs in the mirror."""

LAST_EXPORT: Final = timedelta(seconds=3)
"""At the end of a process, for what has not been sent. A collector that is away does not hold it up."""


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """What is told. Parts that nobody asked for are ``None``."""

    meter: Meter | None = None
    tracer: RunTracer | None = None
    page: MetricsPage | None = None
    server: MetricsServer | None = None
    _closers: Sequence[Callable[[], object]] = field(default=(), repr=False)

    def interceptors(self) -> list[Interceptor]:
        """Make what workers of workflows need so that fires and runs are counted and traced. Call it in their event loop."""
        listeners: list[Listener] = []
        if self.meter is not None:
            listeners.append(JobMetrics(self.meter).hear)
        if self.tracer is not None:
            listeners.append(self.tracer.hear)
        if not listeners:
            return []
        return [NewsInterceptor(listeners, attempt_scope=self.tracer.enter_attempt if self.tracer else None)]

    @asynccontextmanager
    async def watching(
        self,
        *,
        database_url: str,
        writer: MirrorWriter | None,
        client: Client,
        admissions: Admissions | None = None,
        upkeep: Upkeep | None = None,
    ) -> AsyncIterator[None]:
        """Show the mirror's writer and the downstreams of this process, and the state of the whole installation, while the
        body runs.

        A process without a writer has no database, and shows none of it.
        """
        if self.meter is None or writer is None:
            yield
            return
        engine = open_database(database_url, limits=Limits(connect=SURVEY_LIMIT, statement=SURVEY_LIMIT, connections=1))
        surveyor = MirrorSurveyor(engine, limit=SURVEY_LIMIT)
        snapshot = LastingSnapshot(InstallationLook(surveyor=surveyor, writer=writer, client=client))
        watch_mirror(self.meter, writer)
        if admissions is not None:
            watch_downstreams(self.meter, admissions)
        if upkeep is not None:
            watch_upkeep(self.meter, upkeep)
        show_state(self.meter, snapshot)
        try:
            yield
        finally:
            snapshot.close()
            await surveyor.close()
            await engine.dispose()

    async def close(self) -> None:
        """Send what has not been sent, and stop."""
        # In a thread that the end of the process does not wait for.
        closing = threading.Thread(target=self._close, name="telemetry-end", daemon=True)
        closing.start()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_EXPORT.total_seconds()
        while closing.is_alive() and loop.time() < deadline:  # noqa: ASYNC110 (a thread's end sets no event)
            await asyncio.sleep(0.02)

    def _close(self) -> None:
        for close in self._closers:
            close()


@asynccontextmanager
async def open_telemetry(settings: Settings, *, service: str, with_page: bool = False) -> AsyncIterator[Telemetry]:
    """Start what is asked for. ``with_page`` makes a page of metrics also where there is no port to serve it on.

    To be entered before the first Temporal client of the process is made. Raises ``InvalidSettings``.
    """
    page = MetricsPage() if settings.metrics_port is not None or with_page else None
    server = None if page is None else _serve(page, settings)
    resource = describe_process(service)
    meters = _start_metrics(resource, page)
    sampler = TracerProvider(shutdown_on_exit=False).sampler  # the one that the environment asks for
    tracers = _start_tracing(resource, sampler)
    _set_runtime(settings, page)
    closers = [
        each for each in (server and server.close, tracers and tracers.shutdown, meters and meters.shutdown) if each
    ]
    telemetry = Telemetry(
        meter=None if meters is None else meters.get_meter(METER),
        tracer=None if tracers is None else RunTracer(tracers, sampler),
        page=page,
        server=server,
        _closers=closers,
    )
    try:
        yield telemetry
    finally:
        await telemetry.close()


def unexported_telemetry() -> Telemetry:
    """Make a page of metrics for an application that is not a process of its own; nothing else of the process is touched."""
    page = MetricsPage()
    return Telemetry(meter=MeterProvider(metric_readers=[page.reader]).get_meter(METER), page=page)


def _serve(page: MetricsPage, settings: Settings) -> MetricsServer | None:
    if settings.metrics_port is None:
        return None
    host, ports = settings.metrics_host, settings.metrics_port
    try:
        server = MetricsServer(page, host=host, ports=ports)
    except OSError as error:
        raise InvalidSettings(
            f"{variable_of('metrics_port')}: cannot listen on {host}:{ports}: {error.strerror}"
        ) from error
    logger.info("metrics are served", extra={"url": server.url})
    return server


def _start_metrics(resource: Resource, page: MetricsPage | None) -> MeterProvider | None:
    """Make the metrics of the process; those of job code and its libraries go the same way."""
    readers: list[MetricReader] = [] if page is None else [page.reader]
    readers += [PeriodicExportingMetricReader(exporter) for exporter in load_exporters(Signal.METRICS)]
    if not readers:
        return None
    provider = MeterProvider(
        metric_readers=readers, resource=resource, exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False
    )
    metrics.set_meter_provider(provider)
    show_build(provider.get_meter(METER), version=str(resource.attributes["service.version"]))
    return provider


def _start_tracing(resource: Resource, sampler: Sampler) -> ReplaySafeTracerProvider | None:
    """Make the traces of the process; spans of job code and its libraries go the same way."""
    exporters = load_exporters(Signal.TRACES)
    if not exporters:
        return None
    provider = create_tracer_provider(
        sampler=sampler, resource=resource, id_generator=WantedIds(), shutdown_on_exit=False
    )
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _set_runtime(settings: Settings, page: MetricsPage | None) -> None:
    """Make the Temporal library tell what it counts where the rest is told, and log as the rest is logged."""
    config = _core_metrics(settings, page)
    if config is None and settings.log_format == "text":
        return
    Runtime.set_default(
        Runtime(telemetry=TelemetryConfig(metrics=config, logging=_core_logging(settings))), error_if_already_set=False
    )


def _core_metrics(settings: Settings, page: MetricsPage | None) -> PrometheusConfig | OpenTelemetryConfig | None:
    over_otlp = "otlp" in "".join(exporter_names(Signal.METRICS))
    if page is not None and (settings.metrics_port is not None or not over_otlp):
        return page.include_core()
    if not over_otlp:
        return None
    return OpenTelemetryConfig(
        url=otlp_endpoint(Signal.METRICS),
        headers=_otlp_headers(),
        http=protocol_of(Signal.METRICS) != "grpc",
        metric_periodicity=timedelta(milliseconds=int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or 60_000)),
        durations_as_seconds=True,
    )


def _otlp_headers() -> Mapping[str, str]:
    for name in ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"):
        if given := os.environ.get(name):
            return parse_env_headers(given, liberal=True)
    return {}


def _core_logging(settings: Settings) -> LoggingConfig:
    if settings.log_format == "text":
        return LoggingConfig.default
    ours = LogForwardingConfig(
        logging.getLogger("temporalio.core"),
        append_target_to_name=False,
        prepend_target_on_message=False,
        append_log_fields_to_message=False,
    )
    return LoggingConfig(filter=LoggingConfig.default.filter, forwarding=ours)
