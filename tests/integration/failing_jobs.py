"""Job code that fails in every way that there is, and works once it is mended. Loaded by workers of tests as a module of a team.

Each call leaves a line in the file that its payload names: the count of what was really done, outside of all tables.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from temporalio import activity

from horarium import PermanentError, checkpoint, current_run


@activity.defn
def break_down(payload: dict[str, Any]) -> str:
    """Do what the payload says, unless the file ``mended`` stands beside the log."""
    run, log = current_run(), Path(payload["log"])
    line = {"run_id": run.run_id, "key": run.idempotency_key, "attempt": run.attempt, "checkpoint": run.checkpoint}
    with log.open("a") as file:
        file.write(json.dumps(line | {"scheduled_at": run.scheduled_at.isoformat(), "pid": os.getpid()}) + "\n")
    checkpoint({"item": run.attempt})
    if log.with_name("mended").exists():
        return "mended"
    return _fail(payload["how"])


def _fail(how: str) -> str:
    match how:
        case "exception":
            raise ValueError("it is broken")
        case "permanent":
            raise PermanentError("it will always be broken")
        case "timeout":
            for _ in range(600):
                time.sleep(0.1)
        case "exit":
            os._exit(1)
        case "too_large":
            return "x" * 3_000_000
        case "connect":
            raise ConnectionRefusedError("nobody listens")
    return "fine"
