"""How long the API waits for a job: for one that is silent not long, for one that is busy as long as it can."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities import job_control
from activities.job_control import JobControl, translated
from workflows.command import TriggerAnswer, TriggerCommand
from workflows.error import Unavailable

PATIENCE = timedelta(seconds=0.4)
LONGEST = timedelta(seconds=1.2)


class Job:
    """Stands for Temporal's client and for the one workflow behind it, which answers a request when the test says so."""

    def __init__(self) -> None:
        self.answers: dict[str, asyncio.Event] = {}

    def get_workflow_handle(self, _: str) -> "Job":
        return self

    async def execute_update(self, _: str, command: TriggerCommand, **__: Any) -> TriggerAnswer:
        await self.answers.setdefault(command.key, asyncio.Event()).wait()
        return TriggerAnswer()

    def answer(self, key: str) -> None:
        """Answer a request, made or to be made."""
        self.answers.setdefault(key, asyncio.Event()).set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests take no longer than they must."""
    monkeypatch.setattr(job_control, "PATIENCE", PATIENCE)
    monkeypatch.setattr(job_control, "LONGEST_PATIENCE", LONGEST)


@pytest.fixture
def job() -> Job:
    """A job that answers nobody yet."""
    return Job()


@pytest.fixture
def control(job: Job) -> JobControl:
    """The way to it."""

    async def finds_attributes() -> bool:
        return True

    return JobControl(job, find_search_attributes=finds_attributes)  # type: ignore[arg-type]


async def trigger(control: JobControl, key: str, *, job_id: str = "j") -> TriggerAnswer:
    """Ask the job for something."""
    return await control.trigger(TriggerCommand(key=key, request_id=key), tenant="t", job_id=job_id)


async def answer_others(control: JobControl, job: Job, *, until: asyncio.Task[Any], job_id: str = "j") -> None:
    """Let other requests for a job be answered, one after the other."""
    number = 0
    while not until.done():
        number += 1
        job.answer(f"other-{number}")
        await trigger(control, f"other-{number}", job_id=job_id)
        await asyncio.sleep(PATIENCE.total_seconds() / 4)


async def test_a_silent_job_is_not_waited_for(control: JobControl) -> None:
    """Whoever asked is told soon that it may be done all the same."""
    with pytest.raises(Unavailable, match="may still be applied"):
        await asyncio.wait_for(trigger(control, "k"), LONGEST.total_seconds())


async def test_a_job_that_answers_others_is_waited_for(control: JobControl, job: Job) -> None:
    """It is busy, and not away."""
    slow = asyncio.create_task(trigger(control, "slow"))
    asyncio.get_running_loop().call_later(2 * PATIENCE.total_seconds(), job.answer, "slow")
    await answer_others(control, job, until=slow)
    assert await slow == TriggerAnswer()


async def test_nobody_waits_for_ever(control: JobControl, job: Job) -> None:
    """Whomever it answers."""
    slow = asyncio.create_task(trigger(control, "slow"))
    await answer_others(control, job, until=slow)
    with pytest.raises(Unavailable):
        await slow


async def test_what_another_job_answers_says_nothing_of_this_one(
    control: JobControl, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is waited for by itself."""
    monkeypatch.setattr(job_control, "LONGEST_PATIENCE", timedelta(seconds=20))
    silent = asyncio.create_task(trigger(control, "slow"))
    begun = asyncio.get_running_loop().time()
    await answer_others(control, job, until=silent, job_id="another")
    with pytest.raises(Unavailable):
        await silent
    assert asyncio.get_running_loop().time() - begun < 10


@pytest.mark.parametrize(
    "status",
    [
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.UNKNOWN,
    ],
)
def test_a_server_that_refuses_us_for_now_is_unavailable(status: RPCStatusCode) -> None:
    """A key of Temporal that has expired is renewed; whoever asked meanwhile is told what the server said."""
    with pytest.raises(Unavailable, match="token expired"), translated():
        raise RPCError("token expired", status, b"")
