"""What the SDK does without a server: envelopes, plain JSON, and fitting a payload to a function."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from horarium import (
    AttemptReport,
    JobRun,
    PermanentError,
    RetryLater,
    RunKind,
    checkpoint,
    current_run,
    parse_attempt_report,
)
from horarium.heartbeat import next_pause
from horarium.payload_fit import PayloadFit
from horarium.plain_json import CHECKPOINT_LIMIT, to_plain_json

STARTED = datetime(2026, 6, 8, 13, 0, 0, 250_000, tzinfo=UTC)


class Report(BaseModel):
    """A payload as a pydantic model."""

    kind: str
    copies: int = 1


@dataclass
class Window:
    """A payload as a dataclass."""

    first: date
    last: date


def run_with(payload: Any) -> JobRun[Any]:
    """Make a run that carries a payload."""
    return JobRun(
        tenant="default",
        job_id="j",
        run_id="j:20260608T130000Z",
        kind=RunKind.SCHEDULED,
        scheduled_at=STARTED,
        target_at=STARTED,
        attempt=1,
        max_attempts=4,
        idempotency_key="k",
        fence=1,
        payload=payload,
    )


def fit(function: Any, payload: Any) -> list[Any]:
    """Fit a payload to a function."""
    return PayloadFit(function).arguments(run_with(payload))


class TestReport:
    """The envelope."""

    def test_a_report_survives_the_wire(self) -> None:
        """What was written is what is read."""
        report = AttemptReport(started_at=STARTED, worker="w", result={"a": [1, None]}, checkpoint="c")
        assert parse_attempt_report(report.to_json()) == report

    def test_a_report_says_its_start_in_rfc_3339(self) -> None:
        """Workers and readers in other languages parse it."""
        report = AttemptReport(started_at=STARTED, worker="w")
        assert report.to_json()["started_at"] == "2026-06-08T13:00:00.250000Z"

    def test_a_later_format_is_read(self) -> None:
        """Formats only grow, so an old scheduler understands a new worker."""
        value = AttemptReport(started_at=STARTED, worker="w", result=1).to_json() | {"horarium": "attempt/2", "new": 1}
        assert parse_attempt_report(value) == AttemptReport(started_at=STARTED, worker="w", result=1)

    @pytest.mark.parametrize(
        "value",
        [
            None,
            "text",
            {},
            {"horarium": 1, "started_at": "2026-06-08T13:00:00Z", "worker": "w"},
            {"horarium": "attempt/1", "started_at": "yesterday", "worker": "w"},
            {"horarium": "attempt/1", "started_at": "2026-06-08T13:00:00", "worker": "w"},
            {"horarium": "attempt/1", "worker": "w"},
        ],
    )
    def test_any_other_value_is_no_report(self, value: Any) -> None:
        """Workers in other languages answer with bare results, and those may be anything."""
        assert parse_attempt_report(value) is None


class TestPlainJson:
    """What may be returned."""

    def test_models_dataclasses_and_dates_have_a_json_form(self) -> None:
        """Job code returns what it has at hand."""
        value = {"report": Report(kind="weekly"), "window": Window(date(2026, 1, 1), date(2026, 1, 2)), 1: {2}}
        assert to_plain_json(value, name="the result", limit=1000) == {
            "report": {"kind": "weekly", "copies": 1},
            "window": {"first": "2026-01-01", "last": "2026-01-02"},
            "1": [2],
        }

    @pytest.mark.parametrize(
        "value", [float("nan"), [float("inf")], object(), lambda: 1, "\ud800", b"\xff", {"deep": {"er": -float("inf")}}]
    )
    def test_what_json_cannot_say_is_a_permanent_error(self, value: Any) -> None:
        """Trying again would return the same."""
        with pytest.raises(PermanentError, match="the result cannot be written as JSON"):
            to_plain_json(value, name="the result", limit=1000)

    def test_a_value_that_contains_itself_is_a_permanent_error(self) -> None:
        """It has no JSON form."""
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(PermanentError):
            to_plain_json(loop, name="the result", limit=1000)

    def test_a_checkpoint_of_megabytes_is_a_permanent_error(self) -> None:
        """SB-120: it would be refused with every heartbeat; trying again does not help, and the reason is told."""
        with pytest.raises(PermanentError, match="the checkpoint is 3,000,002 bytes of JSON; at most 65,536"):
            to_plain_json("x" * 3_000_000, name="the checkpoint", limit=CHECKPOINT_LIMIT)

    def test_the_limit_counts_bytes_of_utf8(self) -> None:
        """The server counts bytes: 10 letters of two bytes and two quotes are 22."""
        assert to_plain_json("é" * 10, name="the result", limit=22) == "é" * 10
        with pytest.raises(PermanentError, match="22 bytes of JSON; at most 21"):
            to_plain_json("é" * 10, name="the result", limit=21)


class TestPayloadFit:
    """What a function gets, by its parameters."""

    def test_a_function_without_parameters_gets_nothing(self) -> None:
        """Most cron jobs need no input."""

        def job() -> None: ...

        assert fit(job, {"ignored": 1}) == []

    def test_a_run_parameter_gets_the_run_with_its_payload_as_it_came(self) -> None:
        """``JobRun`` alone leaves the payload plain."""

        def job(run: JobRun) -> None: ...

        assert fit(job, {"kind": "weekly"}) == [run_with({"kind": "weekly"})]

    def test_a_typed_run_parameter_gets_a_typed_payload(self) -> None:
        """``JobRun[Report]`` says what the payload is."""

        def job(run: JobRun[Report]) -> None: ...

        assert fit(job, {"kind": "weekly"}) == [run_with(Report(kind="weekly"))]

    @pytest.mark.parametrize(
        ("hint", "payload", "expected"),
        [
            (Report, {"kind": "weekly", "copies": 2}, Report(kind="weekly", copies=2)),
            (Window, {"first": "2026-01-01", "last": "2026-01-02"}, Window(date(2026, 1, 1), date(2026, 1, 2))),
            (int, 3, 3),
            (str, "x", "x"),
            (list[int], [1, 2], [1, 2]),
            (dict[str, Any], {"a": 1}, {"a": 1}),
            (timedelta, "PT5M", timedelta(minutes=5)),
            (Report | None, None, None),
            (Any, {"any": [True]}, {"any": [True]}),
        ],
    )
    def test_one_parameter_gets_the_payload_as_its_type(self, hint: Any, payload: Any, expected: Any) -> None:
        """Models, dataclasses and builtins are what teams annotate with."""

        def job(value: Any) -> None: ...

        job.__annotations__["value"] = hint
        assert fit(job, payload) == [expected]

    def test_one_parameter_without_annotation_gets_the_plain_payload(self) -> None:
        """Annotations are not required."""

        def job(value):  # type: ignore[no-untyped-def]
            ...

        assert fit(job, {"a": 1}) == [{"a": 1}]

    def test_a_null_payload_leaves_a_default(self) -> None:
        """A job without a payload is the common case."""

        def job(copies: int = 2) -> None: ...

        assert fit(job, None) == []

    def test_several_parameters_get_members_by_name(self) -> None:
        """Whatever the order; absent members leave defaults, and one may be the run."""

        def job(run: JobRun[Any], first: date, copies: int = 2, *, note: str = "") -> None: ...

        payload = {"first": "2026-01-01"}
        assert fit(job, payload) == [run_with(payload), date(2026, 1, 1), 2]

    def test_a_typed_run_beside_others_has_a_typed_payload_as_well(self) -> None:
        """What the annotation says is what it gets."""

        def job(run: JobRun[Report], kind: str, copies: int = 1) -> None: ...

        assert fit(job, {"kind": "weekly"}) == [run_with(Report(kind="weekly")), "weekly", 1]

    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            ({"kind": "weekly", "copies": "many"}, r"^payload\.copies: Input should be a valid integer"),
            ({"copies": 1}, r"^payload\.kind: Field required"),
            ([], r"^payload: Input should be an object"),
        ],
    )
    def test_a_misfit_names_the_member(self, payload: Any, message: str) -> None:
        """The owner of the job must see what to correct."""

        def job(report: Report) -> None: ...

        with pytest.raises(PermanentError, match=message):
            fit(job, payload)

    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            ({"copies": 1}, r"^payload\.kind: missing"),
            ({"kind": "weekly", "copy": 1}, r"^payload\.copy: .* only kind, copies"),
            ({"kind": 5}, r"^payload\.kind: Input should be a valid string"),
            ("weekly", r"^payload: an object with the members kind, copies is needed"),
        ],
    )
    def test_a_misfit_with_several_parameters_names_the_member(self, payload: Any, message: str) -> None:
        """As above."""

        def job(kind: str, copies: int = 1) -> None: ...

        with pytest.raises(PermanentError, match=message):
            fit(job, payload)

    def test_a_misfit_does_not_show_the_value(self) -> None:
        """Payloads may hold personal data, and error messages travel far."""

        def job(copies: int) -> None: ...

        with pytest.raises(PermanentError) as caught:
            fit(job, "s3cret")
        assert "s3cret" not in str(caught.value)

    def test_a_method_gets_its_run_without_self(self) -> None:
        """Activities may be methods of an object that holds connections."""

        class Jobs:
            def job(self, report: Report) -> None: ...

        assert fit(Jobs().job, {"kind": "weekly"}) == [Report(kind="weekly")]

    def test_a_callable_object_gets_its_run(self) -> None:
        """Temporal allows them, so the SDK does."""

        class Job:
            def __call__(self, report: Report) -> None: ...

        assert fit(Job(), {"kind": "weekly"}) == [Report(kind="weekly")]


class TestOutsideARun:
    """The functions that need a run."""

    @pytest.mark.parametrize("call", [current_run, lambda: checkpoint(1)])
    def test_outside_a_run_the_error_says_what_is_needed(self, call: Any) -> None:
        """Whoever calls them from a script must understand why it fails."""
        with pytest.raises(RuntimeError, match="was called outside a Horarium run"):
            call()

    def test_a_negative_delay_is_refused_where_it_is_made(self) -> None:
        """It would mean nothing to the scheduler."""
        with pytest.raises(ValueError, match="zero or more"):
            RetryLater(timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("timeout", "pause"),
    [
        (timedelta(seconds=30), timedelta(seconds=5)),
        (timedelta(seconds=3), timedelta(seconds=1)),
        (timedelta(hours=1), timedelta(seconds=5)),
        (None, timedelta(seconds=5)),
    ],
)
def test_heartbeats_go_out_thrice_in_a_timeout_and_every_five_seconds(
    timeout: timedelta | None, pause: timedelta
) -> None:
    """One lost heartbeat must not lose the attempt, and a cancellation must not wait long."""
    assert next_pause(timeout) == pause
