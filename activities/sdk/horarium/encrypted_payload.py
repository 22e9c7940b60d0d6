"""What an encrypted payload looks like, for whoever meets one. Knows no key, and needs no cryptography.

Names here are wire format: histories keep payloads for years. None is ever renamed or reused.
"""

import re
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ApplicationError

ENCODING: Final = "binary/horarium-aes256gcm"
"""Of the payload. Its data are a nonce of 12 bytes and what AES-256-GCM makes of the payload within, serialised."""

KEY_ID: Final = "encryption-key-id"
"""Member of the metadata: which key."""

TENANT: Final = "horarium-tenant"
"""Member of the metadata: whose payload it is; left out where that is not known. Both members are authenticated."""

CANNOT_DECRYPT: Final = "CannotDecrypt"
"""Type of the error of a process that lacks the key. With the key it goes on: nothing is lost, and trying again is right."""

_OF_A_TENANT: Final = re.compile(
    r"(?:job|run|attempt|records|redrive|alert|downstream|backfill|hold)/([A-Za-z0-9][A-Za-z0-9._-]{0,62})/."
)
"""Ids of the scheduler's workflows, and of those that it starts for a team."""

_IN_CLEAR: Final = "catalogue/"
"""Ids of workflows with nobody's payloads: what the workers of a task queue can run, which workers without keys read too."""


class CannotDecrypt(ApplicationError):
    """A payload is encrypted with a key that this process does not have, or is not what was encrypted.

    Names keys by their ids only.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, type=CANNOT_DECRYPT)


def is_encrypted(payload: Payload) -> bool:
    """Say whether a payload is encrypted in our way."""
    return payload.metadata.get("encoding") == ENCODING.encode()


def key_id_of(payload: Payload) -> str:
    """Name the key that an encrypted payload needs."""
    return payload.metadata.get(KEY_ID, b"").decode(errors="replace")


def tenant_of_payload(payload: Payload) -> str | None:
    """Say whose payload it is, as far as it says so. Nothing vouches for it before it is decrypted."""
    found = payload.metadata.get(TENANT)
    return None if found is None else found.decode(errors="replace")


def tenant_of_workflow(workflow_id: str) -> str | None:
    """Say whose workflow it is; ``None`` for one that the scheduler has not named."""
    found = _OF_A_TENANT.match(workflow_id)
    return None if found is None else found[1]


def is_in_clear(workflow_id: str) -> bool:
    """Say whether a workflow's payloads are never encrypted."""
    return workflow_id.startswith(_IN_CLEAR)
