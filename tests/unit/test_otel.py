"""What OpenTelemetry's own variables ask for."""

import pytest

from workers.otel import Signal, describe_process, exporter_names, load_exporters, otlp_endpoint
from workers.settings import InvalidSettings

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HTTP, GRPC = "otlp_proto_http", "otlp_proto_grpc"


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({}, [], []),
        ({ENDPOINT: "http://collector:4318"}, [HTTP], [HTTP]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, [HTTP], []),
        ({ENDPOINT: "http://c", "OTEL_METRICS_EXPORTER": "none"}, [HTTP], []),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", HTTP], []),
        ({ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, [GRPC], [GRPC]),
        ({ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"}, [HTTP], [GRPC]),
        ({ENDPOINT: "http://c", "OTEL_SDK_DISABLED": "true"}, [], []),
        ({ENDPOINT: " "}, [], []),
    ],
)
def test_nothing_is_sent_unless_a_variable_asks(
    environment: dict[str, str], traces: list[str], metrics: list[str]
) -> None:
    """An endpoint asks for both signals; the rest is as the specification has it."""
    assert exporter_names(Signal.TRACES, environment) == traces
    assert exporter_names(Signal.METRICS, environment) == metrics


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({}, "http://localhost:4318/v1/metrics"),
        ({ENDPOINT: "http://c:4318/"}, "http://c:4318/v1/metrics"),
        ({ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://c:4317"),
        ({ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/here"}, "http://m/here"),
    ],
)
def test_the_library_sends_where_the_rest_is_sent(environment: dict[str, str], endpoint: str) -> None:
    """The endpoint of a signal is taken as it is, the shared one with the signal's path."""
    assert otlp_endpoint(Signal.METRICS, environment) == endpoint


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: there is no exporter 'zipkin' here; pip install "),
        ({ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL: "),
    ],
)
def test_what_cannot_be_is_one_line_that_names_the_variable(environment: dict[str, str], message: str) -> None:
    """So that a process that cannot do what was asked says so at its start."""
    with pytest.raises(InvalidSettings) as caught:
        load_exporters(Signal.TRACES, environment)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_environment_may_name_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say goes first."""
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    assert describe_process("horarium-api").attributes["service.name"] == "horarium-api"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "cron")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
    attributes = describe_process("horarium-api").attributes
    assert (attributes["service.name"], attributes["deployment.environment.name"]) == ("cron", "staging")
    assert attributes["service.version"]
