"""The fixture that pytest has wherever this package is installed. Imports nothing until a test asks for it."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from horarium.testing import JobTester


@pytest.fixture
def job_tester() -> "JobTester":
    """Runs jobs without a server, under a clock of the test's own: ``job_tester.run(my_job, payload={...})``."""
    from horarium.testing import JobTester

    return JobTester()
