"""Twenty thousand registered jobs are listed by any filter within 50 ms, at p95, on PostgreSQL."""

import statistics
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from activities.database import open_database
from tests.api_server import serving
from tests.slowness import slowness
from workers.devserver import DevServer

JOBS = 20_000
ROUNDS = 3
REQUESTS = 40
"""A round."""

LIMIT_SECONDS = 0.05

FILL = f"""
    INSERT INTO jobs (tenant, job_id, version, revision, state, definition, name, owner, labels, target, task_queue,
        search_text, registered_at, updated_at, next_run_at, next_target_at, high_water, fence, counts, active_runs,
        waiting_runs)
    SELECT 'default', job_id, 1, 1, state, json_build_object('name', name, 'owner', owner, 'labels', labels,
            'payload', json_build_object('text', repeat('x', 200))),
        name, owner, labels, 'activity-' || n % 50, 'horarium',
        job_id || E'\\n' || name || E'\\n\\n' || owner || E'\\nactivity-' || n % 50,
        at, at, CASE state WHEN 'active' THEN at END, CASE state WHEN 'active' THEN at END, at, 0, '{{}}', 0, 0
    FROM (
        SELECT n, 'j_' || md5(n::text) AS job_id, 'report-' || n % 400 AS name, 'team-' || n % 40 AS owner,
            jsonb_build_object('team', 'team-' || n % 40, 'tier', 't' || n % 3, 'only', 'only-' || n) AS labels,
            CASE n % 20 WHEN 0 THEN 'paused' WHEN 1 THEN 'completed' WHEN 2 THEN 'deleted' ELSE 'active' END AS state,
            timestamptz '2030-01-01 00:00:00+00' + n * interval '1 minute' AS at
        FROM generate_series(1, {JOBS}) AS n
    ) AS made
"""

FILTERS: dict[str, dict[str, str | list[str]]] = {
    "all": {},
    "active": {"state": "active"},
    "paused": {"state": "paused"},
    "deleted": {"state": "deleted"},
    "a common label": {"label": "tier:t1"},
    "a rare label": {"label": "only:only-19999"},
    "two labels": {"label": ["team:team-7", "tier:t1"]},
    "an unknown label": {"label": "only:nobody"},
    "a name": {"name": "report-399"},
    "an unknown name": {"name": "nobody"},
    "a target": {"target": "activity-49"},
    "an unknown target": {"target": "nobody"},
    "a common text": {"q": "Report"},
    "a rare text": {"q": "port-399"},
    "an unknown text": {"q": "nobody"},
    "the next hours": {"next_after": "2030-01-10T00:00:00Z", "next_before": "2030-01-10T06:00:00Z"},
    "the far future": {"next_after": "2035-01-01T00:00:00Z"},
    "many at once": {"state": "active", "label": "tier:t1", "q": "team-3", "next_before": "2030-01-10T06:00:00Z"},
}


@pytest.fixture
async def api(postgresql_url: str, temporal_server: DevServer) -> AsyncIterator[httpx.AsyncClient]:
    """The API on a mirror of so many jobs."""
    engine = open_database(postgresql_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql(FILL)
        await connection.exec_driver_sql("ANALYZE jobs")
    await engine.dispose()
    async with serving(database_url=postgresql_url, temporal_address=temporal_server.options.address) as client:
        yield client


async def _p95(api: httpx.AsyncClient, parameters: dict[str, str | list[str]]) -> float:
    taken = []
    for _ in range(REQUESTS):
        started = time.perf_counter()
        answer = await api.get("/jobs", params=parameters)
        taken.append(time.perf_counter() - started)
        assert answer.status_code == 200, answer.text
    return statistics.quantiles(taken, n=20)[-1]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_any_filter_answers_within_fifty_milliseconds(api: httpx.AsyncClient) -> None:
    """Over HTTP, a page of fifty, the best of three rounds, on a machine that may have other work."""
    found = {}
    for name, parameters in FILTERS.items():
        slower = slowness()
        found[name] = min([await _p95(api, parameters) for _ in range(ROUNDS)]) / slower
        print(f"{name:20} p95 {found[name] * 1000:6.1f} ms, on a machine {slower:.1f} times slower than free")
    assert {name: p95 for name, p95 in found.items() if p95 > LIMIT_SECONDS} == {}
