"""What several of the tests of faults look at."""

from collections.abc import AsyncIterator

import pytest

from activities.database import open_database
from activities.queries import Queries


@pytest.fixture
async def queries(postgresql_url: str) -> AsyncIterator[Queries]:
    """What people read."""
    engine = open_database(postgresql_url)
    yield Queries(engine)
    await engine.dispose()
