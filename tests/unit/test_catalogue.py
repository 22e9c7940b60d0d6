"""What workers tell of their activities, and what a catalogue keeps of it."""

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, create_model
from temporalio import activity

from horarium import JobRun, wrap_activity
from horarium.catalogue import ANNOUNCEMENT_LIMIT, FRESH_FOR, HEARD_OF_FOR, RENEW_EVERY, SCHEMA_LIMIT, announce, pack
from horarium.payload_fit import PayloadFit
from workflows.catalogue import (
    MEMO_LIMIT,
    VERSION_SHOWN,
    AnnouncedActivity,
    Announcement,
    Catalogue,
    from_memo,
    take_in,
    to_memo,
)

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)


class Report(BaseModel):
    """A payload."""

    kind: str
    day: date | None = None


def defined(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Make an activity of a function."""
    return activity.defn(name=name)(function)


class TestSchemas:
    """The payload schema of a function, by its parameters."""

    def test_a_payload_that_nobody_reads_may_be_anything(self) -> None:
        """No parameter, a bare run, and a parameter without annotation."""

        def nothing() -> None: ...
        def run(run: JobRun) -> None: ...
        def plain(payload):  # type: ignore[no-untyped-def]
            ...

        assert [PayloadFit(function).json_schema() for function in (nothing, run, plain)] == [{}, {}, {}]

    def test_one_parameter_and_a_typed_run_take_their_type(self) -> None:
        """The same schema for both."""

        def own(report: Report) -> None: ...
        def run(run: JobRun[Report]) -> None: ...

        schema = PayloadFit(own).json_schema()
        assert schema == PayloadFit(run).json_schema()
        assert schema["required"] == ["kind"]
        assert schema["properties"]["day"]["anyOf"][0] == {"type": "string", "format": "date"}  # type: ignore[index, call-overload]

    def test_a_default_lets_null_pass(self) -> None:
        """As at the fire: the function is called without it."""

        def job(copies: int = 2) -> None: ...

        assert PayloadFit(job).json_schema() == {"anyOf": [{"type": "integer"}, {"type": "null"}]}

    def test_several_parameters_are_members_and_no_others_are_known(self) -> None:
        """The run beside them is no member."""

        def job(run: JobRun, kind: str, copies: int = 1) -> None: ...

        assert PayloadFit(job).json_schema() == {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "copies": {"type": "integer"}},
            "required": ["kind"],
            "additionalProperties": False,
        }

    def test_members_that_may_all_be_absent_let_null_pass(self) -> None:
        """A job without a payload is the common case."""

        def job(kind: str = "", copies: int = 1) -> None: ...

        members = {"kind": {"type": "string"}, "copies": {"type": "integer"}}
        assert PayloadFit(job).json_schema() == {
            "anyOf": [{"type": "object", "properties": members, "additionalProperties": False}, {"type": "null"}]
        }

    def test_models_of_the_same_name_do_not_meet(self) -> None:
        """Two parameters may have types of two modules."""
        one = create_model("Window", first=(date, ...), inner=(Report, ...))
        other = create_model("Window", last=(int, ...))

        def job(a: Any, b: Any) -> None: ...

        job.__annotations__ |= {"a": one, "b": other}
        schema = PayloadFit(job).json_schema()
        references = {each["$ref"] for each in schema["properties"].values()}  # type: ignore[union-attr, index, call-overload]
        assert len(references) == 2


class TestAnnouncement:
    """What a worker tells."""

    def test_activities_are_told_by_the_names_that_jobs_use(self) -> None:
        """Wrapped or not, dynamic ones excepted; a type that pydantic cannot describe is told without a schema."""

        def job(kind: str) -> None: ...
        def odd(call: Callable[[], int]) -> None: ...
        def bare(kind: str) -> None: ...

        told = announce(
            [wrap_activity(defined(job, "renamed"), worker="w"), defined(odd, "odd"), defined(bare, "bare")]
        )
        assert told.schemas == {"bare": {"type": "string"}, "odd": None, "renamed": {"type": "string"}}

    def test_the_version_is_that_of_what_is_told(self) -> None:
        """The same for all workers of one version, in whatever order they list their activities."""

        def job(kind: str) -> None: ...
        def other(copies: int) -> None: ...
        def changed(kind: int) -> None: ...

        functions = [defined(job, "job"), defined(other, "other")]
        assert announce(functions).version == announce(functions[::-1]).version
        assert announce(functions).version != announce([defined(changed, "job"), functions[1]]).version

    def test_too_large_a_schema_is_left_out_alone(self) -> None:
        """Its activity is still known."""
        huge = create_model("Huge", **{f"member_{number}": (int, ...) for number in range(1000)})  # type: ignore[call-overload]

        def small(kind: str) -> None: ...
        def large(payload: Any) -> None: ...

        large.__annotations__["payload"] = huge
        told = announce([defined(small, "small"), defined(large, "large")])
        assert len(json.dumps(huge.model_json_schema())) > SCHEMA_LIMIT
        assert told.schemas == {"large": None, "small": {"type": "string"}}

    def test_many_schemas_are_bounded_together(self) -> None:
        """Three versions must fit into the memo of a workflow."""
        model = create_model("Middle", **{f"member_{number}": (int, ...) for number in range(300)})  # type: ignore[call-overload]

        def make(number: int) -> Callable[..., Any]:
            def job(payload: Any) -> None: ...

            job.__annotations__["payload"] = model
            return defined(job, f"job_{number}")

        told = announce([make(number) for number in range(30)])
        kept = [schema for schema in told.schemas.values() if schema is not None]
        assert len(told.schemas) == 30
        assert 0 < len(kept) < 30
        assert sum(len(json.dumps(schema)) for schema in kept) <= ANNOUNCEMENT_LIMIT


def told(version: str, *names: str) -> Announcement:
    """Make an announcement."""
    return Announcement(version=version, activities={name: AnnouncedActivity(payload_schema={}) for name in names})


def versions(catalogue: Catalogue) -> list[str]:
    """List the versions that a catalogue knows."""
    return [each.version for each in catalogue.versions]


class TestCatalogue:
    """What is kept."""

    def test_a_version_is_known_once_and_by_its_last_word(self) -> None:
        """However often its workers tell it."""
        first = take_in(Catalogue(), told("a", "job"), now=NOW)
        again = take_in(first, told("a", "job"), now=NOW + timedelta(minutes=1))
        assert [(each.version, each.seen_at) for each in again.versions] == [("a", NOW + timedelta(minutes=1))]

    def test_versions_that_follow_each_other_are_known_together(self) -> None:
        """During a deployment both run; the one heard of last stands last."""
        catalogue = Catalogue()
        for number, version in enumerate(["a", "b", "a"]):
            catalogue = take_in(catalogue, told(version, "job"), now=NOW + timedelta(minutes=number))
        assert versions(catalogue) == ["b", "a"]

    def test_a_version_that_nobody_renews_is_forgotten_when_another_is_told(self) -> None:
        """Its workers are gone. Two renewals may fail before that."""
        catalogue = take_in(Catalogue(), told("a", "job"), now=NOW)
        assert versions(take_in(catalogue, told("b", "job"), now=NOW + 2 * RENEW_EVERY)) == ["a", "b"]
        assert versions(take_in(catalogue, told("b", "job"), now=NOW + HEARD_OF_FOR)) == ["b"]

    def test_the_last_version_stays_however_long_its_workers_sleep(self) -> None:
        """A queue scaled to zero over the weekend still knows its payloads."""
        catalogue = take_in(Catalogue(), told("a", "job"), now=NOW)
        assert versions(take_in(catalogue, told("a", "job"), now=NOW + timedelta(days=30))) == ["a"]

    def test_no_more_than_three_versions_are_kept(self) -> None:
        """The memo is bounded, whoever starts workers of however many versions."""
        catalogue = Catalogue()
        for version in "abcde":
            catalogue = take_in(catalogue, told(version, "job"), now=NOW)
        assert versions(catalogue) == ["c", "d", "e"]

    def test_what_is_too_large_for_the_memo_is_dropped_the_oldest_first(self) -> None:
        """At last the schemas themselves; names stay. Workers in other languages may not know the bound."""
        noise = [random.Random(number).randbytes(14_000).hex() for number in range(4)]
        catalogue = Catalogue()
        for version, text in enumerate(noise[:3]):
            large = Announcement(
                version=str(version), activities={"job": AnnouncedActivity(payload_schema={"title": text})}
            )
            catalogue = take_in(catalogue, large, now=NOW)
            assert len(to_memo(catalogue)) <= MEMO_LIMIT
        assert versions(catalogue) == ["1", "2"]
        huge = Announcement(
            version="huge", activities={"job": AnnouncedActivity(payload_schema={"title": "".join(noise)})}
        )
        [last] = take_in(catalogue, huge, now=NOW).versions
        assert (last.version, last.activities) == ("huge", {"job": AnnouncedActivity()})
        names = {random.Random(number).randbytes(100).hex(): AnnouncedActivity() for number in range(1000)}
        too_many = Announcement(version="v" * 1_000_000, activities=names)
        [last] = take_in(catalogue, too_many, now=NOW).versions
        assert (len(last.version), last.activities) == (VERSION_SHOWN, {})

    def test_what_our_own_workers_tell_fits_three_times(self) -> None:
        """The largest announcement that our SDK makes, of schemas as pydantic makes them."""
        model = create_model("Middle", **{f"member_{number}": (int, ...) for number in range(300)})  # type: ignore[call-overload]

        def make(number: int) -> Callable[..., Any]:
            def job(payload: Any) -> None: ...

            job.__annotations__["payload"] = create_model(f"Model{number}", __base__=model)
            return defined(job, f"job_{number}")

        announced = announce([make(number) for number in range(30)])
        catalogue = Catalogue()
        for version in "abc":
            told_by = Announcement.model_validate(announced.to_json() | {"version": version})
            catalogue = take_in(catalogue, told_by, now=NOW)
        assert len(catalogue.versions) == 3
        assert from_memo(to_memo(catalogue)) == catalogue

    @pytest.mark.parametrize("memo", ["", "nonsense", "bm9uc2Vuc2U=", pack(["no", "catalogue"])])
    def test_a_memo_of_another_make_is_told_apart(self, memo: str) -> None:
        """Whoever reads it goes on without."""
        with pytest.raises(ValueError, match=r".*"):
            from_memo(memo)

    def test_what_a_later_release_tells_is_read(self) -> None:
        """Members that are not known here do no harm, and absent ones have their defaults."""
        read = Announcement.model_validate({"version": "a", "new": 1, "activities": {"job": {"new": 1}, "other": {}}})
        assert read == Announcement(version="a", activities={"job": AnnouncedActivity(), "other": AnnouncedActivity()})


def test_a_version_that_is_looked_at_in_turn_never_runs_out() -> None:
    """A worker that looks finds its version stale, and renews it, long before it is forgotten."""
    assert FRESH_FOR < RENEW_EVERY
    assert 2 * RENEW_EVERY < HEARD_OF_FOR


@pytest.mark.parametrize("schema", [True, False, {}, {"type": "object"}, None])
def test_any_json_schema_is_carried(schema: Any) -> None:
    """Also those that are a single word."""
    assert AnnouncedActivity(payload_schema=schema).payload_schema == schema
