"""The attempt that the current code works on, and what job code may ask of it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TypeAlias

from pydantic import JsonValue

from horarium.attempt_report import AttemptReport
from horarium.effect_desk import EffectDesk
from horarium.job_run import JobRun
from horarium.plain_json import CHECKPOINT_LIMIT, RESULT_LIMIT, to_plain_json
from horarium.secret import Secrets, resolve_secrets


class Attempt:
    """One attempt on this worker. Mutable: it gathers what the next report will say."""

    def __init__(
        self, *, run: JobRun[Any], worker: str, started_at: datetime, effects: EffectDesk | None = None
    ) -> None:
        self.run = run
        self.worker = worker
        self.effects = effects
        """Where ``once`` claims; ``None`` on a worker without an effect store."""

        self.effects_named: dict[str, object] = {}
        """Who took which name for an effect."""

        self.begun = time.monotonic()
        self.secrets = Secrets()
        self._started_at = started_at
        self._checkpoint: JsonValue = run.checkpoint
        self.on_checkpoint: Callable[[], None] = lambda: None
        """Called after each checkpoint, from whatever thread saved it. Set by the heartbeats."""

    def resolve_secrets(self) -> None:
        """Put values in the place of the payload's secret references, and hide them in all that is told from now on."""
        payload, self.secrets = resolve_secrets(self.run.payload, tenant=self.run.tenant)
        self.run = JobRun(**{**vars(self.run), "payload": payload})

    def to_plain_json(self, value: object, *, name: str, limit: int) -> JsonValue:
        """Convert what leaves the worker to plain JSON without secrets. Raises ``PermanentError`` where that is impossible."""
        return self.secrets.hide_in_json(to_plain_json(value, name=name, limit=limit))

    def save(self, value: object) -> None:
        """Replace the checkpoint."""
        self._checkpoint = self.to_plain_json(value, name="the checkpoint", limit=CHECKPOINT_LIMIT)
        self.on_checkpoint()
        if listener := _listener.get():
            listener(self._checkpoint)

    def report(self) -> AttemptReport:
        """Say where the attempt stands."""
        return AttemptReport(started_at=self._started_at, worker=self.worker, checkpoint=self._checkpoint)

    def report_success(self, returned: object) -> AttemptReport:
        """Say what it came to. Raises ``PermanentError`` where that is not JSON."""
        result = self.to_plain_json(returned, name="the result", limit=RESULT_LIMIT)
        return AttemptReport(started_at=self._started_at, worker=self.worker, result=result)


_current_attempt: ContextVar[Attempt] = ContextVar("horarium_attempt")

CheckpointListener: TypeAlias = Callable[[JsonValue], None]

_listener: ContextVar[CheckpointListener | None] = ContextVar("horarium_checkpoint_listener", default=None)


@contextmanager
def entered(attempt: Attempt) -> Iterator[None]:
    """Make an attempt the current one of this context."""
    token = _current_attempt.set(attempt)
    try:
        yield
    finally:
        _current_attempt.reset(token)


@contextmanager
def listening(listener: CheckpointListener) -> Iterator[None]:
    """Tell each checkpoint that is saved in this context. For tests: on a worker nobody listens."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def find_attempt() -> Attempt | None:
    """Get the attempt that this code works on, if it works on one."""
    return _current_attempt.get(None)


def current_run() -> JobRun[Any]:
    """Get the run that this code works on.

    Known in the activity's function and in all that it awaits or calls, ``asyncio.to_thread`` included; in a thread of
    your own only if you hand it a copy of the context. Raises ``RuntimeError`` elsewhere, so also in an activity that
    another workflow than Horarium's has started.
    """
    return require_attempt("current_run()").run


def checkpoint(value: object) -> None:
    """Save how far the run has come: the next attempt finds it in ``current_run().checkpoint``.

    Anything with a JSON form, at most 64 KiB; each call replaces the one before. A failure carries the last one. When a
    worker dies, what it saved up to about a second before its death is found.
    """
    require_attempt("checkpoint()").save(value)


def require_attempt(caller: str) -> Attempt:
    """Get the attempt that this code works on. Raises ``RuntimeError``, which names the caller, where it works on none."""
    attempt = find_attempt()
    if attempt is None:
        raise RuntimeError(
            f"{caller} was called outside a Horarium run: it works in an activity that a job runs, on a worker with "
            "HorariumPlugin, and in threads that were given a copy of the context"
        )
    return attempt
