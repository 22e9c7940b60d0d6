"""An empty database is filled from Temporal by ``horarium mirror rebuild``, as an operator runs it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import pytest
from sqlalchemy import Table, select

from activities.database import open_database, reading
from activities.tables import ATTEMPTS, BACKFILLS, JOBS, LEDGER, RUNS
from tests.api_stack import JOB_CODE, ApiStack, running_stack
from tests.databases import fresh_database
from tests.eventually import eventually
from tests.worker_process import environment

pytestmark = pytest.mark.slow

ENOUGH: Final = timedelta(seconds=90)

TABLES: Final = (JOBS, RUNS, ATTEMPTS, LEDGER, BACKFILLS)

NAP: Final = """

@activity.defn
async def nap(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)
"""

EVERY_SECOND: Final = {"schedule": "@every 1s", "time_critical": True}

FIRING: Final[list[dict[str, Any]]] = [
    {"job_id": "timer", "name": "echo", "payload": 1, **EVERY_SECOND},
    {"job_id": "detached", "name": "echo", "isolation": "workflow", "schedule": "@every 3s", "time_critical": True},
    {"job_id": "overlapping", "name": "nap", "payload": 1.5, **EVERY_SECOND},
    {"job_id": "dying", "name": "nobody-knows-it", "schedule": "@every 2s", "time_critical": True},
]

SLEEPING: Final[list[dict[str, Any]]] = [
    {"job_id": "weekly", "name": "echo", "schedule": "0 9 * * 1"},
    {"job_id": "paused", "name": "echo", "schedule": "0 9 * * 1", "enabled": False},
    {"job_id": "deleted", "name": "echo", "schedule": "0 9 * * 1"},
]


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """Everything, on PostgreSQL."""
    folder = tmp_path_factory.mktemp("stack")
    with running_stack(request, folder, database="postgresql", job_code=JOB_CODE + NAP) as stack:
        yield stack


async def mirror_command(stack: ApiStack, database_url: str, *arguments: str, expect: int = 0) -> dict[str, Any]:
    """``horarium mirror``, as an operator runs it."""
    command = [sys.executable, "-P", "-c", "from api.cli import main; main()", "mirror", *arguments, "--json"]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        env=environment({"database_url": database_url}) | {"TEMPORAL_ADDRESS": stack.server.options.address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expect, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


async def rows_of(url: str, table: Table) -> dict[tuple[Any, ...], dict[str, Any]]:
    """All rows of a table, by their keys."""
    engine = open_database(url)
    keys = [column.name for column in table.primary_key]
    async with reading(engine) as connection:
        found = [dict(row) for row in (await connection.execute(select(table))).mappings()]
    await engine.dispose()
    return {tuple(row[key] for key in keys): row for row in found}


@pytest.mark.timeout(300)
async def test_an_empty_database_is_filled_while_jobs_fire(stack: ApiStack, request: pytest.FixtureRequest) -> None:
    """SB-084: every job, run, attempt, ledger entry and backfill that there was, its definition included, equal to the letter; a
    second time adds nothing old."""
    async with stack.client() as api:
        for body in (*FIRING, *SLEEPING):
            assert (await api.post("/jobs", json=body)).status_code == 201
        await api.patch("/jobs/weekly", json={"payload": 7}, headers={"Content-Type": "application/merge-patch+json"})
        await api.delete("/jobs/deleted")
        asked = {"from": "2026-06-01T00:00:00Z", "to": "2026-06-30T00:00:00Z"}
        begun = await api.post("/jobs/weekly/backfills", json=asked)
        assert begun.status_code == 202

        async def has_history() -> bool:
            runs = (await api.get("/jobs/timer/runs?limit=100&status=success")).json()
            backfill = (await api.get(f"/backfills/{begun.json()['backfill_id']}")).json()
            return len(runs) >= 30 and backfill["status"] == "done"

        await eventually(has_history, limit=ENOUGH)
        before = {table: await rows_of(stack.database_url, table) for table in TABLES}
        assert [row["definition"]["payload"] for row in before[BACKFILLS].values()] == [7]
        with fresh_database(request.getfixturevalue("postgres_server"), template="template1") as url:
            report = await mirror_command(stack, url, "rebuild")
            assert report["failed"] == 0, report
            print(report)
            after = {table: await rows_of(url, table) for table in before}
            for table, rows in before.items():
                missing = rows.keys() - after[table].keys()
                assert not missing, (table.name, sorted(missing)[:3])
                for key, row in rows.items():
                    # What was still under way is further by now.
                    assert after[table][key]["version"] >= row["version"], (table.name, key)
                    if after[table][key]["version"] == row["version"]:
                        assert after[table][key] == row
            again = await mirror_command(stack, url, "rebuild")
            assert again["added"]["jobs"] == 0
            assert again["failed"] == 0
            for table, rows in after.items():
                assert rows.keys() <= (await rows_of(url, table)).keys()
        for body in FIRING:
            await api.delete(f"/jobs/{body['job_id']}?cancel_active=true")

        async def agrees() -> bool:
            report = await mirror_command(stack, stack.database_url, "reconcile")
            return not report["found"]

        await eventually(agrees)
        await mirror_command(stack, stack.database_url, "check")
