"""How our processes read and write what travels through Temporal.

As Temporal's own pydantic converter, with one difference: what somebody else's worker adds to a failure or a heartbeat is
never refused. That worker may encrypt with a key that we do not have, or send a type that we do not know; Temporal's own
converter would then fail the workflow task, again and again, and the job would stand still for ever.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import CompositePayloadConverter

UNREADABLE: Final = "unreadable"
"""The one member of the object that stands for what could not be read; its value says how that was encoded."""


_SHARED: Final = PydanticPayloadConverter()


class TolerantPayloadConverter(PydanticPayloadConverter):
    """Reads what it can of values whose type nobody asks for: those beside failures and in heartbeats.

    The SDK makes several for each activation of a workflow, and one for each workflow. All share the converters that they are
    made of, which have no state but the types that they have learned to read.
    """

    def __init__(self) -> None:
        CompositePayloadConverter.__init__(self, *_SHARED.converters.values())

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Read values. Without types none of them fails."""
        if type_hints is not None:
            return super().from_payloads(payloads, type_hints)
        return [self._read(payload) for payload in payloads]

    def _read(self, payload: Payload) -> Any:
        try:
            return super().from_payloads([payload])[0]
        except Exception:
            # Whatever a converter raises for bytes that are none of its own.
            return {UNREADABLE: payload.metadata.get("encoding", b"").decode(errors="replace")}


DATA_CONVERTER: Final = dataclasses.replace(pydantic_data_converter, payload_converter_class=TolerantPayloadConverter)
