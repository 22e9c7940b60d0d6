"""A whole Horarium for the tests of the API and the command line."""

from collections.abc import Iterator

import pytest

from tests.api_stack import ApiStack, running_stack
from tests.scheduling import until_unit_ends


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def api_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """Temporal, a worker and the API, as processes, on each kind of database in turn. Tests share it."""
    with until_unit_ends(running_stack(request, tmp_path_factory.mktemp("stack"), database=request.param)) as stack:
        yield stack


@pytest.fixture(scope="session")
def author_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """The same on SQLite, for tests in which workers of teams come and go."""
    with until_unit_ends(running_stack(request, tmp_path_factory.mktemp("stack"), database="sqlite")) as stack:
        yield stack
