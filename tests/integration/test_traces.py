"""Traces as a collector gets them, from real processes."""

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.eventually import eventually
from tests.otlp_receiver import OtlpReceiver, SeenSpan, receiving
from tests.telemetry_stack import TelemetryStack, telling
from workers.workflow_runner import strict_runner
from workflows.job_workflow import JobWorkflow

AT_ONCE = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500"}


SENT_WITHIN = timedelta(seconds=80)
"""What cannot be asked in time has no value, and is asked for again at the next export."""


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    """A collector."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, collector: OtlpReceiver
) -> Iterator[TelemetryStack]:
    """A Horarium that sends everything to the collector."""
    folder = tmp_path_factory.mktemp("stack")
    url = f"sqlite:///{shutil.copy(sqlite_template, folder / 'horarium.sqlite')}"
    with telling(folder, database_url=url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **AT_ONCE) as running:
        yield running


def named(spans: list[SeenSpan], name: str) -> SeenSpan:
    """Find the one span of a name."""
    [found] = [span for span in spans if span.name == name]
    return found


async def whole_run(collector: OtlpReceiver, job_id: str, *, spans: int) -> list[SeenSpan]:
    """Wait for the first trace of a job that is complete."""

    def look() -> list[SeenSpan]:
        roots = [
            span
            for span in collector.spans()
            if span.attributes.get("job_id") == job_id and span.name == "scheduled run"
        ]
        assert roots, [span.name for span in collector.spans()]
        found = collector.trace(roots[0].trace_id)
        assert len(found) >= spans, [span.name for span in found]
        return found

    return await eventually(look)


async def test_one_trace_goes_from_the_fire_into_the_code_of_the_job(
    stack: TelemetryStack, collector: OtlpReceiver
) -> None:
    """Run, attempt, activity and what its author traces: one trace over three processes, with one name for each fact.

    The registration is another one, from the caller's own span through the API and Temporal to the job's first moment; the
    run's first span has a link to it.
    """
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await stack.register("payments", "charge", payload=3, headers={"traceparent": caller})
    spans = await whole_run(collector, "payments", spans=4)
    whole, attempt, activity, authors = (
        named(spans, name) for name in ("scheduled run", "attempt", "charge", "call the bank")
    )
    assert whole.parent_id == ""
    assert [span.parent_id for span in (attempt, activity, authors)] == [
        whole.span_id,
        attempt.span_id,
        activity.span_id,
    ]
    assert [span.service for span in (whole, attempt, activity, authors)] == [
        "horarium-scheduler",
        "horarium-scheduler",
        "horarium-job",
        "horarium-job",
    ]
    assert whole.start <= attempt.start <= activity.start <= authors.start
    assert authors.end <= activity.end <= attempt.end <= whole.end
    facts = [(span.attributes["tenant"], span.attributes["job_id"], span.attributes["run_id"]) for span in spans[:3]]
    assert len(set(facts)) == 1
    assert (attempt.attributes["attempt"], activity.attributes["attempt"]) == (1, 1)
    assert not any(span.failed for span in spans)

    [registration] = whole.links
    assert registration == "0af7651916cd43dd8448eb211c80319c"
    registered = collector.trace(registration)
    request, call, begins = (
        named(registered, name) for name in ("POST /api/v1/jobs", "start HorariumJob", "job begins")
    )
    assert (request.parent_id, call.parent_id, begins.parent_id) == ("b7ad6b7169203331", request.span_id, call.span_id)
    assert {span.attributes["job_id"] for span in registered} == {"payments"}


async def test_all_attempts_of_a_run_are_in_its_trace(stack: TelemetryStack, collector: OtlpReceiver) -> None:
    """A job that fails and is tried again, in a thread: two attempts under one run, red, and without the error's text."""
    await stack.register("refunds", "refuse", max_retries=1, retry_backoff={"kind": "fixed", "base_seconds": 1})
    spans = await whole_run(collector, "refunds", spans=7)
    attempts = [span for span in spans if span.name == "attempt"]
    assert [span.attributes["attempt"] for span in attempts] == [1, 2]
    whole = named(spans, "scheduled run")
    assert {span.parent_id for span in attempts} == {whole.span_id}
    assert [span.parent_id for span in spans if span.name == "refuse"] == [span.span_id for span in attempts]
    assert all(span.failed for span in spans)
    assert {span.attributes["error.type"] for span in attempts} == {"ConnectionError"}
    assert "S3CR3T" not in repr([span for span in spans if span.name != "ask the bank"])
    assert whole.attributes["status"] == "dead"


async def test_metrics_are_sent_too(stack: TelemetryStack, collector: OtlpReceiver) -> None:
    """By the same variables: our own of every process that has some, and those of the Temporal library."""
    await stack.register("metered", "charge", payload=1)
    for service, name in (
        ("horarium-scheduler", "horarium_fires"),
        ("horarium-scheduler", "horarium_task_queue_oldest_age"),
        ("horarium-api", "horarium_jobs"),
        ("horarium-api", "http.server.request.duration"),
    ):
        await eventually(
            partial(lambda service, name: name in collector.metrics(service), service, name), limit=SENT_WITHIN
        )


async def test_logs_lead_to_traces_and_runs(stack: TelemetryStack, collector: OtlpReceiver) -> None:
    """Every line of every process is JSON, and those about an attempt say which it was and in which trace."""
    await stack.register("logged", "refuse", max_retries=0)
    spans = await whole_run(collector, "logged", spans=4)

    lines: list[dict[str, Any]] = [json.loads(line) for line in stack.team.log.read_text().splitlines()]
    of_job = [line for line in lines if line.get("job_id") == "logged"]
    facts = {"tenant": "default", "job_id": "logged", "run_id": spans[0].attributes["run_id"], "attempt": 1}
    assert all(line.items() >= facts.items() for line in of_job)

    authors = next(line for line in of_job if line["message"] == "refused")
    assert (authors["reason"], authors["trace_id"]) == ("weekend", spans[0].trace_id)
    assert authors["span_id"] == named(spans, "ask the bank").span_id
    assert any(line["message"] == "Completing activity as failed" for line in of_job)
    for log in (stack.scheduler.log, stack.api.log):
        assert all("message" in json.loads(line) for line in log.read_text().splitlines())


async def test_a_traced_history_replays_without_tracing(stack: TelemetryStack, collector: OtlpReceiver) -> None:
    """Contexts travel in headers, which no replay compares: tracing can be turned on and off while jobs sleep."""
    await stack.register("replayed", "charge", payload=1)
    await whole_run(collector, "replayed", spans=4)
    client = await Client.connect(stack.address, data_converter=pydantic_data_converter)
    history = await client.get_workflow_handle("job/default/replayed").fetch_history()
    assert "_tracer-data" in history.to_json()
    replayer = Replayer(
        workflows=[JobWorkflow], workflow_runner=strict_runner(), data_converter=pydantic_data_converter
    )
    await replayer.replay_workflow(history)
