"""Secret references: where values come from, and what never tells them."""

import asyncio
import io
import json
import logging
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import BaseModel, JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from horarium import PermanentError, checkpoint, current_run, once
from horarium.effect import Claim, EffectKey, Outcome, Succeeded
from horarium.effect_memory import MemoryEffectStore
from horarium.secret import Secrets, resolve_secrets
from horarium.secret_log import HidingFormatter
from horarium.testing import run_job

VALUE = 'S3CR3T-xyz"ü/\n'
"""With what is written otherwise in JSON, in ``repr`` and in URLs."""


def resolved(payload: JsonValue, *, tenant: str = "default", **environment: str) -> JsonValue:
    """Resolve a payload in an environment."""
    return resolve_secrets(payload, tenant=tenant, environment=environment)[0]


class TestReference:
    """What stands for a secret."""

    def test_it_may_stand_anywhere_in_a_payload(self) -> None:
        """The rest stays as it is."""
        payload: JsonValue = {
            "url": "https://bank.example",
            "headers": [{"Authorization": {"$secret": "bank-token"}}, 5, None],
        }
        assert resolved(payload, HORARIUM_SECRET_BANK_TOKEN="t") == {
            "url": "https://bank.example",
            "headers": [{"Authorization": "t"}, 5, None],
        }
        assert resolved({"$secret": "bank-token"}, HORARIUM_SECRET_BANK_TOKEN="t") == "t"

    @pytest.mark.parametrize(
        "reference",
        [
            {"$secret": "a", "more": 1},
            {"$secret": 5},
            {"$secret": None},
            {"$secret": ""},
            {"$secret": "../../etc/passwd"},
            {"$secret": "a/b"},
            {"$secret": ".."},
            {"$secret": "a\x00"},
            {"$secret": "x" * 129},
        ],
    )
    def test_what_only_looks_like_one_is_refused(self, reference: dict[str, JsonValue], tmp_path: Path) -> None:
        """With its place, for good."""
        (tmp_path / "a").write_text("t")
        with pytest.raises(PermanentError, match=r"^payload\.db\.1: a secret reference is"):
            resolved({"db": [1, reference]}, HORARIUM_SECRETS_DIR=str(tmp_path))

    def test_an_unknown_secret_is_named_with_where_it_may_be_put(self) -> None:
        """Trying again does not help."""
        with pytest.raises(PermanentError) as refusal:
            resolved({"password": {"$secret": "db-password"}}, HORARIUM_SECRET_OTHER=VALUE)
        assert str(refusal.value) == (
            "payload.password: secret 'db-password' is not known to this worker: set HORARIUM_SECRET_DB_PASSWORD, or put it into "
            "a file of the folder that HORARIUM_SECRETS_DIR names"
        )


class TestFile:
    """One file a secret, as Docker and Kubernetes mount them."""

    @pytest.mark.parametrize(("written", "read"), [("t", "t"), ("t\n", "t"), ("t\r\n", "t"), ("a\nb\n\n", "a\nb\n")])
    def test_the_line_break_that_editors_add_is_no_part_of_it(self, tmp_path: Path, written: str, read: str) -> None:
        """One, and no more."""
        (tmp_path / "bank.token").write_text(written, newline="")
        assert resolved({"$secret": "bank.token"}, HORARIUM_SECRETS_DIR=str(tmp_path)) == read

    def test_a_file_goes_before_the_environment(self, tmp_path: Path) -> None:
        """It can be changed while the worker runs; each attempt reads it anew."""
        (tmp_path / "token").write_text("file")
        environment = {"HORARIUM_SECRETS_DIR": str(tmp_path), "HORARIUM_SECRET_TOKEN": "environment"}
        assert resolved({"$secret": "token"}, **environment) == "file"
        (tmp_path / "token").unlink()
        assert resolved({"$secret": "token"}, **environment) == "environment"

    def test_other_tenants_have_folders_of_their_own_and_nothing_else(self, tmp_path: Path) -> None:
        """No job can name what belongs to another tenant."""
        (tmp_path / "acme").mkdir()
        (tmp_path / "acme" / "token").write_text("acme's")
        (tmp_path / "token").write_text("ours")
        environment = {"HORARIUM_SECRETS_DIR": str(tmp_path), "HORARIUM_SECRET_KEY": "ours"}
        assert resolved({"$secret": "token"}, tenant="acme", **environment) == "acme's"
        for tenant, name in (("other", "token"), ("acme", "key"), ("..", "token"), ("default", "acme")):
            with pytest.raises(PermanentError, match="is not known"):
                resolved({"$secret": name}, tenant=tenant, **environment)


class TestHiding:
    """Values are replaced in whatever leaves the worker."""

    @pytest.mark.parametrize("write", [str, repr, json.dumps, quote, lambda value: value.splitlines()[0]])
    def test_however_they_are_written(self, write: Callable[[str], str]) -> None:
        """Quoted, escaped, percent-encoded, or one line of several."""
        text = Secrets([VALUE]).hide_in(f"before {write(VALUE)} after")
        assert "S3CR3T" not in text
        assert text.startswith("before ")
        assert text.endswith(" after")

    def test_one_that_is_part_of_another_leaves_no_rest(self) -> None:
        """The longest goes first."""
        assert Secrets(["token", "token-and-more"]).hide_in("token-and-more, token") == "***, ***"

    def test_short_values_are_left_alone(self) -> None:
        """Three characters are no secret, and would be found in everything."""
        assert Secrets(["a", "abc", ""]).hide_in("abc") == "abc"

    def test_json_keeps_its_shape(self) -> None:
        """Names of members are texts as well."""
        value: JsonValue = {"token": [1, None, True, "my token"], "x": 1.5}
        assert Secrets(["token"]).hide_in_json(value) == {"***": [1, None, True, "my ***"], "x": 1.5}


class Login(BaseModel):
    """A payload of a team."""

    user: str
    password: str


class Number(BaseModel):
    """A payload that a text does not fit."""

    pin: int


class TestJob:
    """What a job does with it."""

    @pytest.fixture(autouse=True)
    def secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Known to the worker."""
        monkeypatch.setenv("HORARIUM_SECRET_DB_PASSWORD", VALUE)

    PAYLOAD = {"user": "u", "password": {"$secret": "db-password"}}

    def test_the_function_gets_the_value(self) -> None:
        """As whatever its payload is; ``current_run()`` has it too."""

        @activity.defn
        async def job(login: Login) -> list[bool]:
            return [login.password == VALUE, current_run().payload["password"] == VALUE]

        assert run_job(job, payload=self.PAYLOAD).require_success() == [True, True]

    def test_an_unknown_secret_ends_the_run(self) -> None:
        """Before the function is called."""

        @activity.defn
        async def job(payload: Any) -> None:
            raise AssertionError("called")

        failure = run_job(job, payload={"$secret": "nope"}).failure
        assert failure is not None
        assert not failure.retryable
        assert failure.message.startswith("payload: secret 'nope' is not known")

    def test_results_and_checkpoints_do_not_tell_it(self) -> None:
        """Whatever the job does."""

        @activity.defn
        async def job(login: Login) -> dict[str, str]:
            checkpoint({"login": login})
            return {"url": f"https://u:{quote(login.password)}@host/"}

        result = run_job(job, payload=self.PAYLOAD)
        assert result.require_success() == {"url": "https://u:***@host/"}
        assert result.checkpoint == {"login": {"user": "u", "password": "***"}}

    def test_stored_results_of_effects_do_not_tell_it(self) -> None:
        """They are in SQL."""
        store = MemoryEffectStore()

        @activity.defn
        async def job(login: Login) -> str:
            async def send() -> str:
                return f"sent with {login.password}"

            return await once("send", send)

        assert (
            run_job(job, payload=self.PAYLOAD, effects=store, idempotency_key="k").require_success() == "sent with ***"
        )
        key = EffectKey(tenant="default", job_id="job", idempotency_key="k", name="send")
        later = Claim(key=key, fence=9, token="t", run_id="r", worker="w")
        answer = asyncio.run(store.claim(later, lease=timedelta()))
        assert answer == Succeeded(Outcome(result='"sent with ***"'))

    @pytest.mark.parametrize(
        "error",
        [
            lambda secret: ValueError(f"login with {secret} failed"),
            lambda secret: ValueError({"password": secret}),
            lambda secret: ApplicationError("no", {"password": secret}, secret, type="Login"),
            lambda secret: ApplicationError(f"no {secret}"),
            lambda secret: ValueError("x" * 1_995 + secret),
            lambda secret: ExceptionGroup("two", [ValueError(secret), KeyError(secret)]),
        ],
    )
    def test_failures_do_not_tell_it(self, error: Callable[[str], Exception]) -> None:
        """Neither message, details, causes, nor what a log shows of them; a message that is cut shows no half of it."""

        @activity.defn
        async def job(login: Login) -> None:
            try:
                cause = error(login.password)
                cause.add_note(login.password)
                raise cause
            except Exception as cause:
                raise error(login.password) from cause

        result = run_job(job, payload=self.PAYLOAD)
        assert isinstance(result.error, ApplicationError)
        assert "S3CR3T" not in "".join(traceback.format_exception(result.error))
        link: BaseException | None = result.error
        while link is not None:
            assert "S3CR3T" not in repr(link) + repr(getattr(link, "details", ""))
            link = link.__cause__

    def test_a_payload_that_does_not_fit_does_not_tell_it(self) -> None:
        """Messages about types quote what they refuse."""

        @activity.defn
        async def job(number: Number) -> None: ...

        failure = run_job(job, payload={"pin": {"$secret": "db-password"}}).failure
        assert failure is not None
        assert "S3CR3T" not in failure.message

    def test_logs_do_not_tell_it(self) -> None:
        """In the text, in its arguments, in fields and in tracebacks; a handler of our workers sees to that."""
        written = io.StringIO()
        handler = logging.StreamHandler(written)
        handler.setFormatter(HidingFormatter(logging.Formatter("%(message)s %(field)s")))
        logger = logging.Logger("team")
        logger.addHandler(handler)

        @activity.defn
        async def job(login: Login) -> None:
            logger.warning("login %s", login.password, extra={"field": login.password})
            try:
                raise ValueError(login.password)
            except ValueError:
                logger.exception("failed", extra={"field": "f"})

        run_job(job, payload=self.PAYLOAD).require_success()
        assert "S3CR3T" not in written.getvalue()
        assert written.getvalue().startswith("login *** ***\nfailed f\nTraceback")

    def test_the_first_attempts_payload_is_still_the_reference(self) -> None:
        """What the scheduler sent is not touched: the value is the attempt's alone."""

        @activity.defn
        async def job(login: Login) -> None: ...

        assert run_job(job, payload=self.PAYLOAD).run.payload == self.PAYLOAD
