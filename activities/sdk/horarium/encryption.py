"""Encrypts what travels through Temporal, so that its server, its database and its backups hold nothing readable.

A codec for a client's data converter: AES-256-GCM, a nonce of random bytes for each payload, the key's id and the tenant beside
it in the clear, and authenticated. What is not encrypted passes: a namespace may begin without, and go on with it. Needs
``horarium[encryption]``.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)

from horarium.encrypted_payload import (
    ENCODING,
    KEY_ID,
    TENANT,
    CannotDecrypt,
    is_encrypted,
    is_in_clear,
    key_id_of,
    tenant_of_workflow,
)
from horarium.encryption_keys import EncryptionKey

NONCE_BYTES: Final = 12
"""Random ones are safe for 2**32 payloads of one key (NIST SP 800-38D, 8.3)."""


class Ciphers:
    """Keys that are ready for use. The first encrypts."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        self.primary = keys[0].key_id
        self._ciphers = {key.key_id: AESGCM(key.secret) for key in keys}

    def seal(self, payload: Payload, *, tenant: str | None) -> Payload:
        """Encrypt a payload of a tenant."""
        metadata = {"encoding": ENCODING.encode(), KEY_ID: self.primary.encode()}
        if tenant is not None:
            metadata[TENANT] = tenant.encode()
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self.primary].encrypt(nonce, payload.SerializeToString(), _bound(metadata))
        return Payload(metadata=metadata, data=nonce + sealed)

    def open(self, payload: Payload) -> Payload:
        """Decrypt a payload; one that is not encrypted in our way stays as it is. Raises ``CannotDecrypt``."""
        if not is_encrypted(payload):
            return payload
        cipher = self._ciphers.get(key_id_of(payload))
        if cipher is None:
            raise CannotDecrypt(
                f"a payload is encrypted with key {key_id_of(payload)!r}, which this process does not have; "
                f"it has {', '.join(map(repr, self._ciphers))}"
            )
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            return Payload.FromString(cipher.decrypt(nonce, sealed, _bound(dict(payload.metadata))))
        except (InvalidTag, ValueError):
            raise CannotDecrypt(
                f"a payload cannot be decrypted with key {key_id_of(payload)!r}: this process has another key of this id, "
                "or the payload was changed"
            ) from None


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """Encrypts every payload with the first key, and decrypts those of all keys."""

    def __init__(self, ciphers: Ciphers, *, tenant: str | None = None, encrypts: bool = True) -> None:
        self.ciphers = ciphers
        self._tenant = tenant
        self._encrypts = encrypts

    def with_context(self, context: SerializationContext) -> Self:
        """Make a codec for the payloads of a workflow, which bear the name of its tenant."""
        workflow_id = getattr(context, "workflow_id", None) or ""
        return type(self)(self.ciphers, tenant=tenant_of_workflow(workflow_id), encrypts=not is_in_clear(workflow_id))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads."""
        if not self._encrypts:
            return list(payloads)
        return [self.ciphers.seal(payload, tenant=self._tenant) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt those that are encrypted. Raises ``CannotDecrypt``."""
        return [self.ciphers.open(payload) for payload in payloads]


class _Chain(PayloadCodec, WithSerializationContext):
    """A codec of a team's own, and ours around it."""

    def __init__(self, inner: PayloadCodec, ours: EncryptionCodec) -> None:
        self.ours = ours
        self._inner = inner

    def with_context(self, context: SerializationContext) -> Self:
        inner = self._inner
        if isinstance(inner, WithSerializationContext):
            inner = inner.with_context(context)
        return type(self)(inner, self.ours.with_context(context))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self.ours.encode(await self._inner.encode(payloads))

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._inner.decode(await self.ours.decode(payloads))


class EncryptedFailures(DefaultFailureConverter):
    """Encrypts messages and stack traces of failures too: job code quotes what it was given.

    Where a key is missing, and nothing could be read that might be quoted, that is told in the clear: whoever is told may lack
    the key of this process in turn.
    """

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)
        self._in_clear = DefaultFailureConverter()

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Write a failure, those that caused it included."""
        if _is_for_want_of_a_key(exception):
            self._in_clear.to_failure(exception, payload_converter, failure)
        else:
            super().to_failure(exception, payload_converter, failure)


def encrypting(converter: DataConverter, keys: Sequence[EncryptionKey]) -> DataConverter:
    """Make a converter that encrypts what another one writes. Without keys, or where that one encrypts already, it is that one.

    A codec that it has is kept within; a failure converter of its own too, which then decides what failures show.
    """
    if not keys or is_encrypting(converter):
        return converter
    codec = EncryptionCodec(Ciphers(keys))
    changes: dict[str, Any] = {
        "payload_codec": codec if converter.payload_codec is None else _Chain(converter.payload_codec, codec)
    }
    if converter.failure_converter_class is DefaultFailureConverter:
        changes["failure_converter_class"] = EncryptedFailures
    return dataclasses.replace(converter, **changes)


def is_encrypting(converter: DataConverter) -> bool:
    """Say whether a converter encrypts in our way."""
    return isinstance(converter.payload_codec, EncryptionCodec | _Chain)


def _is_for_want_of_a_key(exception: BaseException | None) -> bool:
    while exception is not None and not isinstance(exception, CannotDecrypt):
        exception = exception.__cause__
    return exception is not None


def _bound(metadata: dict[str, bytes]) -> bytes:
    """Say what a payload is bound to: it cannot be passed off as another tenant's. None of the parts may have a NUL."""
    return b"\0".join((metadata["encoding"], metadata[KEY_ID], metadata.get(TENANT, b"")))
