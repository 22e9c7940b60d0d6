"""What the codec endpoint makes of payloads: Temporal's remote codec protocol, and whose payloads a caller may see. Pure.

Payloads are the JSON form of Temporal's own, ``{"payloads": [{"metadata": {"encoding": "..."}, "data": "..."}]}``, in which all
bytes are base64.
"""

import base64
import binascii
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from temporalio.api.common.v1 import Payload

from activities.api_key import Scope
from api.body import Body
from api.caller import Caller
from api.problem import FieldError, ForeignPayload, InvalidRequest
from horarium.encrypted_payload import CannotDecrypt, is_encrypted, tenant_of_payload
from horarium.encryption import Ciphers
from workflows.job import DEFAULT_TENANT

BODY_LIMIT: Final = 8_388_608
"""Bytes. Temporal takes 2 MiB for one payload, which is a third more as base64, and Web UIs send those of an event together."""

_TO_STANDARD: Final = str.maketrans("-_", "+/")


def _read_bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.translate(_TO_STANDARD)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None


Base64 = Annotated[bytes, BeforeValidator(_read_bytes, json_schema_input_type=str)]
"""Bytes in either alphabet, padded or not, as protobuf's JSON has them."""


class _Lenient(Body):
    """A body of somebody else's protocol, which may grow."""

    model_config = ConfigDict(extra="ignore")


class PayloadBody(_Lenient):
    """One payload of Temporal."""

    metadata: dict[str, Base64] = Field(default={}, description="Values are base64; `encoding` says what the data are.")
    data: Base64 = Field(default=b"", description="Base64.")


class CodecBody(_Lenient):
    """What a Web UI or a command line of Temporal sends to its codec."""

    payloads: list[PayloadBody]


class PayloadAnswer(BaseModel):
    """One payload of Temporal."""

    metadata: dict[str, str] = Field(description="Values are base64.")
    data: str = Field(description="Base64.")


class CodecAnswer(BaseModel):
    """As many payloads as were sent, in their order."""

    payloads: list[PayloadAnswer]


def decode_payloads(body: CodecBody, ciphers: Ciphers, *, caller: Caller) -> CodecAnswer:
    """Decrypt payloads. What is not encrypted stays as it is.

    Raises:
        ForeignPayload: one of them is not the caller's to see. Then none is shown.
        InvalidRequest: one of them cannot be decrypted.
    """
    payloads = [_to_payload(each) for each in body.payloads]
    for index, payload in enumerate(payloads):
        _require_own(payload, caller=caller, place=f"payloads/{index}")
    return _to_answer([_open(payload, ciphers, pointer=f"/payloads/{index}") for index, payload in enumerate(payloads)])


def encode_payloads(body: CodecBody, ciphers: Ciphers, *, caller: Caller) -> CodecAnswer:
    """Encrypt payloads of the caller's tenant."""
    return _to_answer([ciphers.seal(_to_payload(each), tenant=caller.tenant) for each in body.payloads])


def _require_own(payload: Payload, *, caller: Caller, place: str) -> None:
    """Hold the tenant that a payload names against the caller's. That it names the right one is seen when it is decrypted."""
    if caller.key is None or not is_encrypted(payload):
        return
    tenant = tenant_of_payload(payload)
    if tenant is None:
        if caller.tenant != DEFAULT_TENANT or not caller.may(Scope.ADMIN):
            raise ForeignPayload(
                f"{place}: of no job's workflow, which only an admin's key of tenant {DEFAULT_TENANT} may see"
            )
    elif tenant != caller.tenant:
        raise ForeignPayload(f"{place}: of another tenant")


def _open(payload: Payload, ciphers: Ciphers, *, pointer: str) -> Payload:
    try:
        return ciphers.open(payload)
    except CannotDecrypt as error:
        raise InvalidRequest(FieldError(pointer=pointer, detail=error.message)) from error


def _to_payload(body: PayloadBody) -> Payload:
    return Payload(metadata=body.metadata, data=body.data)


def _to_answer(payloads: list[Payload]) -> CodecAnswer:
    return CodecAnswer(payloads=[_describe(payload) for payload in payloads])


def _describe(payload: Payload) -> PayloadAnswer:
    metadata = {name: _to_base64(value) for name, value in payload.metadata.items()}
    return PayloadAnswer(metadata=metadata, data=_to_base64(payload.data))


def _to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
