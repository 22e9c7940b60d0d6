"""The API dies before each single step of each change: ``kill -9`` by itself, in the middle of a request."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.api_stack import ApiStack, running_stack
from tests.dying_api import DyingApis
from tests.killed_requests import OPERATIONS, survive

pytestmark = pytest.mark.slow

MOST_STEPS: Final = 30
"""More than any request has: each commit, each command to Temporal, and the answer."""

LEAST_STEPS: Final = 4
"""A change is noted in the audit log, told to Temporal, written to the mirror, and answered."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """Everything, on each kind of database."""
    with running_stack(request, tmp_path_factory.mktemp("stack"), database=request.param) as stack:
        yield stack


@pytest.fixture(scope="module")
def apis(stack: ApiStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DyingApis]:
    """APIs that die when they are told to."""
    folder: Path = tmp_path_factory.mktemp("dying")
    with DyingApis(folder, address=stack.server.options.address, database_url=stack.database_url) as apis:
        yield apis


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_request_survives_the_death_of_its_api_at_every_step(
    stack: ApiStack, apis: DyingApis, name: str
) -> None:
    """SB-082: after the reconciler's pass SQL and Temporal agree, and the request, repeated with its key, is done once."""
    steps = 0
    while await survive(stack, apis, OPERATIONS[name], at=str(steps)):
        steps += 1
        assert steps < MOST_STEPS
    print(f"{name}: died before each of {steps} steps")
    assert steps >= LEAST_STEPS
