"""Calendars over HTTP and by the command line, and the jobs that use them."""

import json
from typing import Any

import httpx

from tests.api_stack import ApiStack
from tests.command import run
from tests.temporal_servers import unique


async def put(api: httpx.AsyncClient, name: str, **body: Any) -> Any:
    answer = await api.put(f"/calendars/{name}", json=body)
    assert answer.is_success, answer.text
    return answer.json()


async def create(api: httpx.AsyncClient, **body: Any) -> Any:
    answer = await api.post("/jobs", json={"name": "noop", "job_id": unique("job"), **body})
    assert answer.is_success, answer.text
    return answer.json()


class TestCalendars:
    """``/calendars``."""

    async def test_a_calendar_is_written_read_listed_and_deleted(self, api_stack: ApiStack) -> None:
        """201 then 200; the same again is the same version."""
        name = unique("calendar")
        body = {"description": "closed", "dates": ["2026-12-24"], "holidays": {"country": "DE", "years": [2026]}}
        async with api_stack.client() as api:
            first = await api.put(f"/calendars/{name}", json=body)
            again = await api.put(f"/calendars/{name}", json=body)
            assert (first.status_code, again.status_code) == (201, 200)
            assert first.headers["ETag"] == again.headers["ETag"] == f'"{first.json()["version"]}"'
            read = (await api.get(f"/calendars/{name}")).json()
            assert read == again.json()
            assert (read["definition"], read["jobs"], read["last"]) == (body, 0, "2026-12-26")
            assert {"from": "2026-12-24", "to": "2026-12-24", "name": ""} in read["days"]
            assert name in [each["name"] for each in (await api.get("/calendars")).json()]
            changed = await put(api, name, dates=["2026-12-24"])
            assert changed["version"] > read["version"]
            assert (await api.delete(f"/calendars/{name}")).is_success
            assert (await api.get(f"/calendars/{name}")).status_code == 404
            assert (await api.delete(f"/calendars/{name}")).status_code == 404

    async def test_what_is_wrong_is_refused_with_its_place(self, api_stack: ApiStack) -> None:
        """In the calendar, and in the job that names one that is not there."""
        async with api_stack.client() as api:
            refused = await api.put("/calendars/c", json={"dates": ["tomorrow"]})
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["pointer"] == "/dates/0"
            assert (await api.put("/calendars/a%20b", json={})).json()["errors"][0]["parameter"] == "name"
            body = {"name": "noop", "schedule": "@daily", "exclude": {"calendars": ["never-was"]}}
            refused = await api.post("/jobs", json=body)
            assert refused.status_code == 422
            assert refused.json()["errors"] == [
                {"pointer": "/exclude/calendars/0", "detail": "there is no calendar 'never-was'"}
            ]

    async def test_a_calendar_that_a_job_uses_cannot_be_deleted(self, api_stack: ApiStack) -> None:
        """Until the job is gone; who uses it is told."""
        name = unique("calendar")
        async with api_stack.client() as api:
            await put(api, name, dates=["2026-12-24"])
            job = await create(api, schedule="@daily", business_days={"calendar": name, "roll": "next"})
            assert job["business_days"] == {"calendar": name, "roll": "next"}
            used = (await api.get(f"/calendars/{name}")).json()
            assert (used["jobs"], used["job_ids"]) == (1, [job["job_id"]])
            refused = await api.delete(f"/calendars/{name}")
            assert refused.status_code == 409
            assert job["job_id"] in refused.json()["detail"]
            assert (await api.delete(f"/jobs/{job['job_id']}")).is_success
            assert (await api.delete(f"/calendars/{name}")).is_success

    async def test_names_of_other_calendars_are_not_taken_for_it(self, api_stack: ApiStack) -> None:
        """Two calendars, one a part of the other's name."""
        name = unique("calendar")
        async with api_stack.client() as api:
            await put(api, name, dates=["2026-12-24"])
            await put(api, f"{name}-x", dates=["2026-12-24"])
            await create(api, schedule="@daily", exclude={"calendars": [f"{name}-x"]})
            assert (await api.get(f"/calendars/{name}")).json()["jobs"] == 0


class TestChangedCalendars:
    """A job takes on the days that its calendar has now."""

    async def test_a_sleeping_job_takes_on_the_new_days(self, api_stack: ApiStack) -> None:
        """Its next fire moves, its revision grows, and the same calendar again changes nothing more."""
        name = unique("calendar")
        async with api_stack.client() as api:
            await put(api, name, dates=[])
            schedule = {"schedule": "0 9 24-31 12 *", "business_days": {"calendar": name, "roll": "skip"}}
            job = await create(api, **schedule)
            path = f"/jobs/{job['job_id']}"
            first = job["next_run_at"][:10]
            written = await put(api, name, dates=[first])
            assert (written["jobs"], written["jobs_behind"]) == (1, 0)
            changed = (await api.get(path)).json()
            assert changed["next_run_at"][:10] > first
            assert changed["revision"] == job["revision"] + 1
            await put(api, name, dates=[first])
            assert (await api.get(path)).json()["revision"] == changed["revision"]
            same = await api.put(path, json={"name": "noop", **schedule})
            assert (same.status_code, same.json()["revision"]) == (200, changed["revision"])
            await api.delete(path)

    async def test_a_job_that_would_never_fire_again_keeps_its_days(self, api_stack: ApiStack) -> None:
        """A slip in a calendar completes no job; the calendar says that one is behind, until it is mended."""
        name = unique("calendar")
        async with api_stack.client() as api:
            await put(api, name, dates=["2026-12-24"])
            job = await create(api, schedule="@daily", exclude={"calendars": [name]})
            slip = await put(api, name, periods=[{"from": "2000-01-01", "to": "2999-12-31"}])
            assert slip["jobs_behind"] == 1
            assert (await api.get(f"/jobs/{job['job_id']}")).json()["next_run_at"] == job["next_run_at"]
            mended = await put(api, name, dates=["2026-12-31"])
            assert mended["jobs_behind"] == 0
            await api.delete(f"/jobs/{job['job_id']}")


async def test_preview_and_upcoming_know_calendars_by_name(api_stack: ApiStack) -> None:
    """One that is tried out goes before the one of its name that is kept."""
    name = unique("calendar")
    body: dict[str, Any] = {
        "schedule": "0 9 * * *",
        "count": 1,
        "after": "2026-12-23T12:00:00Z",
        "exclude": {"calendars": [name]},
    }
    async with api_stack.client() as api:
        assert (await api.post("/preview", json=body)).status_code == 422
        await put(api, name, dates=["2026-12-24"])
        kept = (await api.post("/preview", json=body)).json()
        assert [fire["local"][:10] for fire in kept["fires"]] == ["2026-12-25"]
        assert [fire["reason"] for fire in kept["removed"]] == [f"calendar {name}"]
        tried = {**body, "calendars": {name: {"dates": ["2026-12-24", "2026-12-25"]}}}
        both = (await api.post("/preview", json=[body, tried])).json()
        assert [answer["fires"][0]["local"][:10] for answer in both] == ["2026-12-25", "2026-12-26"]


def test_calendars_live_and_die_by_the_command_line(api_stack: ApiStack) -> None:
    """Put, list, show, delete."""
    url, name = api_stack.api.url, unique("calendar")
    options = ("--country", "DE", "--subdivision", "BY", "--years", "2026-2027", "--date", "2026-12-24")
    put_it = run("calendars", "put", name, *options, "--period", "2026-08-03/2026-08-21", url=url)
    assert put_it.stdout.startswith(f"calendar {name}: ")
    assert name in run("calendars", "list", url=url).stdout
    assert "Epiphany" in run("calendars", "show", name, url=url).stdout
    shown = json.loads(run("calendars", "show", name, "--json", url=url).stdout)
    assert shown["definition"]["periods"] == [{"from": "2026-08-03", "to": "2026-08-21"}]
    yaml = "dates: [2026-12-24]\nperiods:\n- {from: 2026-12-27, to: 2026-12-28}\n"
    run("calendars", "put", name, "-f", "-", stdin=yaml, url=url)
    assert json.loads(run("calendars", "show", name, "--json", url=url).stdout)["count"] == 3
    assert run("calendars", "delete", name, url=url).stdout == f"deleted calendar {name}\n"
    assert "holidays.0.country" in run("calendars", "put", name, "--country", "XX", url=url, expect=2).stderr
