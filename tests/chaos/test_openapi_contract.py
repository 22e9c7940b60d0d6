"""Strangers' requests, made from the OpenAPI document by Schemathesis: none is answered with 500, or otherwise than it says."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.api_key import Scope
from tests.api_keys import add_key, with_key
from tests.api_stack import ApiStack, running_stack
from tests.eventually import eventually

SECONDS = 300 if os.environ.get("HORARIUM_CHAOS") == "long" else 45

CONFIG = Path(__file__).parents[1] / "data" / "schemathesis.toml"


@pytest.fixture(params=["sqlite", "postgresql"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiStack]:
    """Everything, on each kind of database in turn."""
    with running_stack(request, tmp_path, database=request.param) as stack:
        yield stack


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_no_request_is_answered_otherwise_than_the_document_says(stack: ApiStack, tmp_path: Path) -> None:
    """With an admin's key; the checks that need one look whether it is really needed."""
    key = asyncio.run(_settled_key(stack))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)]
    options = [
        "run",
        f"{stack.api.url}/openapi.json",
        "--max-time",
        str(SECONDS),
        "--suppress-health-check",
        "all",
        "--no-color",
    ]
    options += ["--header", f"Authorization: Bearer {key}", "--request-timeout", "20", "--warnings", "off"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    print(done.stdout[-20_000:])
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert "Traceback" not in stack.api.log.read_text()


async def _settled_key(stack: ApiStack) -> str:
    """Make a key, and wait until it is needed."""
    key = await add_key(stack.database_url, scope=Scope.ADMIN)
    async with stack.client() as api, with_key(api, key) as keyed:

        async def is_needed() -> bool:
            return (await api.get("/jobs")).status_code == 401 and (await keyed.get("/jobs")).status_code == 200

        await eventually(is_needed)
    return key
