"""Alerts on a whole stack: what a receiver is told, once each, whatever it answers at first."""

import asyncio
import hashlib
import hmac
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from activities.alert import Alerter
from activities.http_address import parse_allowance
from activities.http_target import HttpSender
from tests.api_stack import ApiStack, running_stack
from tests.eventually import eventually
from tests.integration.test_dead_letters import CODE, create, mend, until_dead
from tests.records import NOON
from tests.temporal_servers import unique
from workers.devserver import free_port
from workflows.alert import Alert
from workflows.alert_rule import AlertKind

SECRET = "a-secret-of-the-receiver"


@dataclass
class Receiver:
    """Takes alerts, after it has refused a few."""

    refusals: int = 0
    url: str = ""
    deliveries: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, request: Request) -> Response:
        """Note a delivery."""
        self.deliveries.append((dict(request.headers), await request.body()))
        if self.refusals:
            self.refusals -= 1
            return Response(status_code=500)
        return Response(status_code=204)

    def bodies(self, job: str, kind: str) -> list[dict[str, Any]]:
        """What was told of a job."""
        told = [json.loads(body) for _, body in self.deliveries]
        return [body for body in told if (body["job_id"], body["kind"]) == (job, kind)]


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[Receiver]:
    """Serve a receiver in this event loop."""
    port = free_port()
    receiver.url = f"http://127.0.0.1:{port}/hook"
    app = Starlette(routes=[Route("/hook", receiver.take, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, access_log=False))
    running = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        yield receiver
    finally:
        server.should_exit = True
        await running


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """A stack whose worker may reach this machine, and knows the receiver's secret."""
    settings = {"http_allow": "127.0.0.1", "secret_hook": SECRET, "visible_after": "1"}
    folder = tmp_path_factory.mktemp("alerts")
    with running_stack(request, folder, database="sqlite", job_code=CODE.read_text(), **settings) as stack:
        yield stack


@pytest.fixture
async def api(stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with stack.client() as client:
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that takes everything."""
    async with receiving(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where job code counts its calls."""
    return tmp_path / "calls.jsonl"


async def test_a_dead_run_is_told_until_it_is_taken(api: httpx.AsyncClient, receiver: Receiver, log: Path) -> None:
    """Tried again while the receiver fails, each time under the same id, signed; then never again."""
    receiver.refusals = 2
    alerts = {"url": receiver.url, "on": ["dead"], "signature": {"$secret": "hook"}}
    job = await create(api, log, alerts=alerts, owner="payroll", labels={"team": "pay"})
    letter = await until_dead(api, job)
    await eventually(lambda: len(receiver.bodies(job, "dead")) == 3, limit=timedelta(seconds=40))
    assert {headers["idempotency-key"] for headers, _ in receiver.deliveries} == {f"default:dead:{letter['run_id']}"}
    [told] = {json.dumps(body) for body in receiver.bodies(job, "dead")}
    body = json.loads(told)
    assert (body["job_id"], body["owner"], body["labels"]) == (job, "payroll", {"team": "pay"})
    assert (body["run"]["run_id"], body["run"]["reason"]) == (letter["run_id"], letter["reason"])
    assert body["run"]["error"]["type"] == "ValueError"
    assert body["alert_id"] == f"default:dead:{letter['run_id']}"
    headers, sent = receiver.deliveries[-1]
    at, _, mac = headers["horarium-signature"].removeprefix("t=").partition(",v1=")
    signed = f"{at}\n{headers['idempotency-key']}\n0\n".encode() + sent
    assert mac == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("isolation", ["auto", "workflow"])
async def test_a_run_that_nobody_takes_is_late_and_then_not_finished(
    api: httpx.AsyncClient, receiver: Receiver, log: Path, isolation: str
) -> None:
    """Both are told although the run never starts, in its job's workflow or one of its own; its job ends as soon as they are."""
    target = {"kind": "activity", "activity": "break_down", "task_queue": unique("nobody")}
    alerts = {
        "url": receiver.url,
        "on": ["late", "not_finished_by", "dead"],
        "late_after_seconds": 2,
        "finish_within_seconds": 5,
    }
    job = await create(api, log, target=target, alerts=alerts, queue_timeout_seconds=8, isolation=isolation)
    [late] = await eventually(lambda: receiver.bodies(job, "late"))
    [unfinished] = await eventually(lambda: receiver.bodies(job, "not_finished_by"))
    assert late["run"]["status"] == "pending"
    assert unfinished["run"]["run_id"] == late["run"]["run_id"]
    assert unfinished["due_at"] > late["due_at"]
    [dead] = await eventually(lambda: receiver.bodies(job, "dead"))
    assert dead["run"]["reason"].startswith("not_started")
    assert len(receiver.bodies(job, "late")) == len(receiver.bodies(job, "not_finished_by")) == 1


async def test_alerts_go_to_the_receiver_of_the_job_or_of_the_tenant_or_of_all() -> None:
    """The nearest one, and no other. Without any, an alert is logged and done with."""
    async with receiving(Receiver()) as job, receiving(Receiver()) as tenant, receiving(Receiver()) as everybody:
        sender = HttpSender(allowance=parse_allowance(["127.0.0.1"]))
        alerter = Alerter(sender, url_for_all=everybody.url, urls={"payroll": tenant.url})
        for about, url in (("payroll", job.url), ("payroll", ""), ("reports", "")):
            alert = Alert(alert_id=unique("alert"), kind=AlertKind.DEAD, tenant=about, url=url, raised_at=NOON)
            await alerter.send_alert(alert)
        told = [[json.loads(body)["tenant"] for _, body in each.deliveries] for each in (job, tenant, everybody)]
        assert told == [["payroll"], ["payroll"], ["reports"]]
        alone = Alerter(sender, url_for_all=None, urls={"payroll": tenant.url})
        await alone.send_alert(Alert(kind=AlertKind.DEAD, tenant="reports", raised_at=NOON))
        assert len(tenant.deliveries) == 1


async def test_what_is_well_is_not_told(api: httpx.AsyncClient, receiver: Receiver, log: Path) -> None:
    """A job that starts in time and finishes in time raises nothing, whatever it watches for."""
    mend(log)
    rules = {"late_after_seconds": 2, "finish_within_seconds": 3}
    alerts = {"url": receiver.url, "on": ["dead", "missed", "late", "not_finished_by"], **rules}
    job = await create(api, log, schedule="@every 1s", time_critical=True, alerts=alerts)
    await eventually(lambda: succeeded(api, job, 6))
    await api.delete(f"/jobs/{job}")
    assert receiver.deliveries == []


async def succeeded(api: httpx.AsyncClient, job: str, count: int) -> bool:
    """Whether so many runs of a job have succeeded."""
    return len((await api.get(f"/jobs/{job}/runs", params={"status": "success"})).json()) >= count


async def test_missed_fires_are_told_together(
    api: httpx.AsyncClient, stack: ApiStack, receiver: Receiver, log: Path
) -> None:
    """One alert for all that an outage of the workers cost, and none below the threshold."""
    mend(log)
    missing: dict[str, Any] = {
        "schedule": "@every 1s",
        "time_critical": True,
        "missed_window": "SKIP",
        "misfire_grace_seconds": 1,
    }
    loud = await create(api, log, alerts={"url": receiver.url, "on": ["missed"]}, **missing)
    quiet = await create(api, log, alerts={"url": receiver.url, "on": ["missed"], "missed_more_than": 60}, **missing)
    await eventually(lambda: succeeded(api, loud, 2))
    receiver.deliveries.clear()
    stack.worker.signal(signal.SIGSTOP)
    try:
        await wait(6)
    finally:
        stack.worker.signal(signal.SIGCONT)
    told = await eventually(lambda: receiver.bodies(loud, "missed"), limit=timedelta(seconds=30))
    assert max(sum(entry["count"] for entry in body["missed"]) for body in told) >= 3
    assert receiver.bodies(quiet, "missed") == []
    for job in (loud, quiet):
        await api.delete(f"/jobs/{job}")


async def wait(seconds: float) -> None:
    """Let an outage last."""
    await asyncio.sleep(seconds)
