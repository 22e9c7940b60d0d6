"""A file of jobs, read and registered against an API that is played."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from workers.job_file import BadJobFile, find_example_file, read_job_file, register_jobs

GOOD = """
jobs:
  - job_id: nightly
    name: noop
    schedule: "0 2 * * *"
    start_at: 2026-06-08T00:00:00Z
  - {job_id: hourly, name: noop, schedule: "@hourly"}
"""


def write(folder: Path, text: str) -> Path:
    """Make a file of jobs."""
    path = folder / "jobs.yaml"
    path.write_text(text)
    return path


class PlayedApi:
    """Answers as the API would; some jobs are there already."""

    def __init__(self, *, there: frozenset[str] = frozenset(), answers: Iterator[httpx.Response] | None = None) -> None:
        self.there = there
        self.answers = answers
        self.posted: list[str] = []
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url="http://api/api/v1")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200 if request.url.path.rpartition("/")[2] in self.there else 404, json={})
        self.posted.append(request.content.decode())
        return next(self.answers) if self.answers else httpx.Response(201, json={})


async def test_jobs_that_are_not_there_are_registered(tmp_path: Path) -> None:
    """With the dates of YAML written as JSON has them."""
    api = PlayedApi()
    assert await register_jobs(read_job_file(write(tmp_path, GOOD)), api.client) == ["nightly", "hourly"]
    assert '"start_at":"2026-06-08T00:00:00Z"' in api.posted[0]


async def test_jobs_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    """Somebody may have changed them."""
    api = PlayedApi(there=frozenset({"nightly"}))
    assert await register_jobs(read_job_file(write(tmp_path, GOOD)), api.client) == ["hourly"]
    assert len(api.posted) == 1


async def test_a_job_that_another_start_has_just_registered_is_there(tmp_path: Path) -> None:
    """409 says so."""
    api = PlayedApi(answers=iter([httpx.Response(409, json={}), httpx.Response(201, json={})]))
    assert await register_jobs(read_job_file(write(tmp_path, GOOD)), api.client) == ["hourly"]


async def test_a_job_that_the_api_refuses_is_named_with_the_field(tmp_path: Path) -> None:
    """One line to find the mistake by."""
    problem = {"detail": "wrong", "errors": [{"pointer": "/schedule", "detail": "hour 25 is out of range"}]}
    api = PlayedApi(answers=iter([httpx.Response(422, json=problem)]))
    with pytest.raises(BadJobFile, match=r"jobs\.yaml: job nightly: /schedule: hour 25 is out of range$"):
        await register_jobs(read_job_file(write(tmp_path, GOOD)), api.client)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: [", r"jobs\.yaml: while parsing .* line 1, column 8"),
        ("- job_id: a", r"a list of jobs under the name 'jobs' is expected"),
        ("jobs: {a: 1}", r"a list of jobs under the name 'jobs' is expected"),
        ("", r"a list of jobs under the name 'jobs' is expected"),
        ("jobs: [{job_id: a}, {name: b}]", r"job 2: an object with a job_id is expected"),
        ("jobs: [{job_id: 7}]", r"job 1: an object with a job_id is expected"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    """Before anything is started."""
    with pytest.raises(BadJobFile, match=message) as caught:
        read_job_file(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    """As the system says it."""
    with pytest.raises(BadJobFile, match=r"nowhere\.yaml: No such file"):
        read_job_file(tmp_path / "nowhere.yaml")


def test_the_example_jobs_are_in_order() -> None:
    """They are what a newcomer sees first."""
    assert [job["job_id"] for job in read_job_file(find_example_file()).jobs] == [
        "every-15-seconds",
        "fails-twice",
        "weekly-report",
    ]
