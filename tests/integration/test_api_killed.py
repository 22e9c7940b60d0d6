"""The API is killed between two steps of a request, and two of them race: what is in SQL is what is in Temporal, once.

``tests/chaos/test_every_step.py`` kills it before each single step.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from tests.api_server import serving
from tests.api_stack import ApiStack
from tests.dying_api import TOLD_TEMPORAL, DyingApis
from tests.killed_requests import DAILY, OPERATIONS, WEEKLY, check_agreement, survive
from tests.temporal_servers import unique


@pytest.fixture(scope="module")
def apis(author_stack: ApiStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DyingApis]:
    """APIs beside that of the stack, which die when they are told to."""
    with DyingApis(
        tmp_path_factory.mktemp("dying"),
        address=author_stack.server.options.address,
        database_url=author_stack.database_url,
    ) as apis:
        yield apis


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_request_survives_the_death_of_its_api(author_stack: ApiStack, apis: DyingApis, name: str) -> None:
    """SB-082: killed when Temporal has been told and SQL has not. After a pass both agree, and repeated it is done, once."""
    assert await survive(author_stack, apis, OPERATIONS[name], at=TOLD_TEMPORAL)


async def race(
    apis: tuple[httpx.AsyncClient, httpx.AsyncClient],
    job_id: str,
    body: Mapping[str, Any],
    precondition: dict[str, str],
    *,
    status: int,
    revision: int,
) -> None:
    """Put a job through both at once, each with a payload of its own: one of them wins."""
    bodies = [{**body, "payload": number} for number in range(2)]
    pairs = zip(apis, bodies, strict=True)
    answers = await asyncio.gather(*(api.put(f"/jobs/{job_id}", json=own, headers=precondition) for api, own in pairs))
    assert Counter(answer.status_code for answer in answers) == {status: 1, 412: 1}
    [winner] = [answer.json() for answer in answers if answer.status_code == status]
    job = (await apis[0].get(f"/jobs/{job_id}")).json()
    assert (job["payload"], job["revision"]) == (winner["payload"], revision)


class TestTwoReplicas:
    """Two API processes share a database and Temporal, and know nothing of each other."""

    async def test_one_of_two_creations_wins(self, author_stack: ApiStack) -> None:
        """Same id, at the same moment: one 201 and one 409, and the job is the winner's."""
        address = author_stack.server.options.address
        async with (
            author_stack.client() as first,
            serving(database_url=author_stack.database_url, temporal_address=address) as second,
        ):
            for _ in range(3):
                job_id = unique("job")
                bodies = [{**WEEKLY, "job_id": job_id, "payload": number} for number in range(2)]
                answers = await asyncio.gather(
                    *(api.post("/jobs", json=body) for api, body in zip((first, second), bodies, strict=True))
                )
                assert sorted(answer.status_code for answer in answers) == [201, 409]
                [winner] = [answer.json() for answer in answers if answer.status_code == 201]
                assert (await first.get(f"/jobs/{job_id}")).json()["payload"] == winner["payload"]
                await check_agreement(author_stack, job_id)

    async def test_one_of_two_puts_that_only_create_wins(self, author_stack: ApiStack) -> None:
        """``If-None-Match: *``: 201 and 412, and nothing of the other is kept, whatever SQL knew when it asked."""
        address = author_stack.server.options.address
        async with (
            author_stack.client() as first,
            serving(database_url=author_stack.database_url, temporal_address=address) as second,
        ):
            for _ in range(3):
                job_id = unique("job")
                await race((first, second), job_id, WEEKLY, {"If-None-Match": "*"}, status=201, revision=1)
                await check_agreement(author_stack, job_id)

    async def test_one_of_two_changes_of_the_same_revision_wins(self, author_stack: ApiStack) -> None:
        """SB-146: both have seen revision 1; the other is told so, and nothing of it is kept."""
        address = author_stack.server.options.address
        async with (
            author_stack.client() as first,
            serving(database_url=author_stack.database_url, temporal_address=address) as second,
        ):
            job_id = unique("job")
            assert (await first.put(f"/jobs/{job_id}", json=WEEKLY)).status_code == 201
            await race((first, second), job_id, DAILY, {"If-Match": '"1"'}, status=200, revision=2)
            await check_agreement(author_stack, job_id)

    async def test_a_deletion_and_a_creation_by_turns_leave_one_job(self, author_stack: ApiStack) -> None:
        """SB-075: each replica does the one or the other as fast as it can; in the end there is what the last answer said."""
        address = author_stack.server.options.address
        async with (
            author_stack.client() as first,
            serving(database_url=author_stack.database_url, temporal_address=address) as second,
        ):
            job_id = unique("job")
            for _ in range(5):
                created = await first.post("/jobs", json={**WEEKLY, "job_id": job_id})
                assert created.status_code == 201, created.text
                deleted = await second.delete(f"/jobs/{job_id}")
                assert (deleted.status_code, deleted.json()["state"]) == (200, "deleted")
            both = await asyncio.gather(
                first.post("/jobs", json={**WEEKLY, "job_id": job_id}), second.delete(f"/jobs/{job_id}")
            )
            assert {answer.status_code for answer in both} <= {200, 201}
            await check_agreement(author_stack, job_id)
