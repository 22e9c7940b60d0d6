"""API keys: how one is made, written, and recognised.

A key is ``hrm_<id>_<secret>``. The id is no secret: it finds the key, and names it in lists and in the audit log. The secret has
256 random bits, of which only the SHA-256 is kept; slower hashes are for what people can guess. Pure, but that ids and secrets
are drawn.
"""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

ID_BYTES: Final = 8
SECRET_BYTES: Final = 32

_KEY: Final = re.compile(r"hrm_(?P<key_id>[a-z2-7]{13})_(?P<secret>[a-z2-7]{52})")


class Scope(StrEnum):
    """What a key is good for. The first four are a ladder: each includes those before it."""

    READ = "read"
    """Everything that changes nothing: jobs, runs, ledgers, previews."""

    OPERATE = "operate"
    """Also what an operator does with what is there: pause, resume, hold, release, trigger, backfill, cancel, redrive, reset."""

    WRITE = "write"
    """Also to create, change and delete jobs and calendars, and to have payloads encrypted."""

    ADMIN = "admin"
    """Also to read the audit log of its tenant."""

    METRICS = "metrics"
    """The page of metrics, which tells of all tenants, and nothing else."""

    def allows(self, needed: "Scope") -> bool:
        """Say whether a key of this scope may do what needs another."""
        return needed in _INCLUDED[self]


_INCLUDED: Final = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.OPERATE: frozenset({Scope.READ, Scope.OPERATE}),
    Scope.WRITE: frozenset({Scope.READ, Scope.OPERATE, Scope.WRITE}),
    Scope.ADMIN: frozenset({Scope.READ, Scope.OPERATE, Scope.WRITE, Scope.ADMIN}),
    Scope.METRICS: frozenset({Scope.METRICS}),
}


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key as the store has it: without its secret."""

    key_id: str
    tenant: str
    """Whose jobs it is for; it sees no others."""

    name: str
    """For people: who or what uses it."""

    scope: Scope
    secret_hash: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    """From then on it is refused; ``None``: never."""

    revoked_at: datetime | None = None
    """From then on it is refused. Set once, by ``horarium keys revoke``; the row stays for the audit log."""

    last_used_at: datetime | None = None
    """Known to within some minutes; ``None`` when it has not been used."""


@dataclass(frozen=True)
class PresentedKey:
    """A key as a caller gives it. It is shown by its id alone, wherever it is printed."""

    key_id: str
    secret: str = field(repr=False)

    def is_secret_of(self, key: ApiKey) -> bool:
        """Say whether it is that key, in a time that tells nothing of how much of the secret is right."""
        return hmac.compare_digest(hash_secret(self.secret), key.secret_hash)


def read_key(text: str) -> PresentedKey | None:
    """Read what a caller gave; ``None`` when it is no key."""
    found = _KEY.fullmatch(text)
    return None if found is None else PresentedKey(found["key_id"], found["secret"])


def draw_key() -> tuple[str, str, str]:
    """Draw a new key: its id, the hash of its secret, and the whole of it, which is to be shown once and kept nowhere."""
    key_id, secret = _draw(ID_BYTES), _draw(SECRET_BYTES)
    return key_id, hash_secret(secret), f"hrm_{key_id}_{secret}"


def hash_secret(secret: str) -> str:
    """Say what is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def hide_keys(text: str) -> str:
    """Leave out the secrets of all keys in a text: for logs."""
    return _KEY.sub(lambda found: f"hrm_{found['key_id']}_***", text)


def _draw(size: int) -> str:
    return base64.b32encode(secrets.token_bytes(size)).decode().lower().rstrip("=")
