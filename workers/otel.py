"""OpenTelemetry as its own environment variables ask for it (``OTEL_...``): exporters, and who this process is.

Off unless one of them asks: an endpoint (``OTEL_EXPORTER_OTLP_ENDPOINT``, or that of a signal) turns on traces and metrics,
``OTEL_TRACES_EXPORTER`` and ``OTEL_METRICS_EXPORTER`` choose (``otlp``, ``console``, ``none``). Exporters are found among
what is installed; OTLP over gRPC is ``pip install opentelemetry-exporter-otlp-proto-grpc``.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.metadata import entry_points, version
from typing import Any, Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from workers.settings import InvalidSettings

DISTRIBUTION: Final = "horarium-server"

_OTLP_BY_PROTOCOL: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


class Signal(StrEnum):
    """What can be exported, as the variables spell it."""

    TRACES = "traces"
    METRICS = "metrics"


def describe_process(service: str) -> Resource:
    """Say who tells: by the environment, and where it says nothing by what we know."""
    ours = {
        "service.name": service,
        "service.version": version(DISTRIBUTION),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    return Resource.get_empty().merge(Resource(ours)).merge(OTELResourceDetector().detect())


def load_exporters(signal: Signal, environment: Mapping[str, str] = os.environ) -> list[Any]:
    """Make the exporters that the environment asks for. Raises ``InvalidSettings`` for one that there is not."""
    return [_load(signal, name) for name in exporter_names(signal, environment)]


def exporter_names(signal: Signal, environment: Mapping[str, str] = os.environ) -> list[str]:
    """List the exporters that the environment asks for, as installed packages name them."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    chosen = environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip()
    if not chosen:
        chosen = "otlp" if any(_endpoints(signal, environment)) else "none"
    names = [name.strip() for name in chosen.split(",")]
    return [_with_protocol(signal, name, environment) for name in names if name not in ("", "none")]


def otlp_endpoint(signal: Signal, environment: Mapping[str, str] = os.environ) -> str:
    """Say where a signal goes over OTLP."""
    own, shared = _endpoints(signal, environment)
    if own:
        return own
    if protocol_of(signal, environment) == "grpc":
        return shared or "http://localhost:4317"
    return f"{(shared or 'http://localhost:4318').rstrip('/')}/v1/{signal}"


def protocol_of(signal: Signal, environment: Mapping[str, str] = os.environ) -> str:
    """Say which protocol a signal goes over: ``http/protobuf`` or ``grpc``. Raises ``InvalidSettings``."""
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environment.get(name, "").strip():
            if protocol not in _OTLP_BY_PROTOCOL:
                raise InvalidSettings(f"{name}: {' or '.join(_OTLP_BY_PROTOCOL)}, not {protocol!r}")
            return protocol
    return "http/protobuf"


def _endpoints(signal: Signal, environment: Mapping[str, str]) -> Iterator[str]:
    yield environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "").strip()
    yield environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()


def _with_protocol(signal: Signal, name: str, environment: Mapping[str, str]) -> str:
    return _OTLP_BY_PROTOCOL[protocol_of(signal, environment)] if name == "otlp" else name


def _load(signal: Signal, name: str) -> Any:
    for entry in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return entry.load()()
    package = f"opentelemetry-exporter-{name.replace('_', '-')}"
    raise InvalidSettings(f"OTEL_{signal.upper()}_EXPORTER: there is no exporter {name!r} here; pip install {package}")
