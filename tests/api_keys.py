"""API keys for tests."""

from datetime import UTC, datetime, timedelta

import httpx

from activities.api_key import ApiKey, Scope, draw_key
from activities.audit_store import AuditEntry, AuditOutcome
from activities.database import open_database
from activities.key_store import KeyStore
from tests.api_server import http_client


def new_key(
    *, tenant: str = "default", scope: Scope = Scope.WRITE, expires_in: timedelta | None = None, name: str = "test"
) -> tuple[ApiKey, str]:
    """Make a key and its text; it is in no store yet."""
    now = datetime.now(UTC)
    key_id, secret_hash, text = draw_key()
    expires_at = None if expires_in is None else now + expires_in
    key = ApiKey(
        key_id=key_id,
        tenant=tenant,
        name=name,
        scope=scope,
        secret_hash=secret_hash,
        created_at=now,
        expires_at=expires_at,
    )
    return key, text


def entry_of(key: ApiKey, *, action: str = "key.create") -> AuditEntry:
    """Make the audit entry of a change of a key."""
    return AuditEntry(
        tenant=key.tenant,
        request_id="",
        actor="operator",
        action=action,
        subject=key.key_id,
        outcome=AuditOutcome.APPLIED,
    )


async def add_key(database_url: str, *, tenant: str = "default", scope: Scope = Scope.WRITE, name: str = "test") -> str:
    """Put a key into a database; answers its text."""
    key, text = new_key(tenant=tenant, scope=scope, name=name)
    engine = open_database(database_url)
    await KeyStore(engine).add(key, entry=entry_of(key))
    await engine.dispose()
    return text


def with_key(api: httpx.AsyncClient, text: str) -> httpx.AsyncClient:
    """Make another client of the same API, which shows a key."""
    return http_client(base_url=str(api.base_url), headers={"Authorization": f"Bearer {text}"})
