"""A worker with something altered in its code that no setting changes: ``python -m tests.bench.altered_worker loop=asyncio``."""

import asyncio
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import PollerBehaviorAutoscaling, UnsandboxedWorkflowRunner

import workers.connection
import workers.process
import workers.worker
from horarium.encryption_keys import VARIABLE, draw_key
from workers.process import run_process, settings_of_environment
from workers.worker_service import serve_until_signalled


def alter(what: str) -> None:
    """Alter it. Raises ``ValueError`` for what is not known."""
    match what:
        case "pollers=scaling":
            vars(workers.worker)["WORKFLOW_POLLERS"] = PollerBehaviorAutoscaling()
        case "sticky_timeout=10s":
            vars(workers.worker)["STICKY_TIMEOUT"] = timedelta(seconds=10)
        case "contexts=asked":
            vars(workers.worker)["plain_runner"] = UnsandboxedWorkflowRunner
        case "converter=pydantic":
            vars(workers.connection)["DATA_CONVERTER"] = pydantic_data_converter
        case "loop=asyncio":
            vars(workers.process)["uvloop"] = asyncio
        case "garbage=everything":
            vars(workers.worker)["keep_what_is_loaded"] = lambda: None
        case "encryption=on":
            file = Path(tempfile.mkdtemp(prefix="horarium-bench-"), "keys")
            file.write_text(draw_key("bench"))
            os.environ[VARIABLE] = str(file)
        case _:
            raise ValueError(what)


if __name__ == "__main__":
    alter(sys.argv[1])
    run_process(settings_of_environment(), serve_until_signalled)
