"""The codec endpoint's payloads: read in either alphabet, and shown to those alone whose they are."""

import base64
import re
from html import escape
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload

from activities.api_key import Scope
from api.body import read_body
from api.caller import Caller
from api.codec import CodecBody, decode_payloads, encode_payloads
from api.codec_origins import origins_of
from api.codec_page import codec_page
from api.problem import ForeignPayload, InvalidRequest
from horarium.encryption import Ciphers
from tests.api_keys import new_key as new_api_key
from tests.encryption import new_key

CIPHERS = Ciphers([new_key("k")])
PAYLOAD = Payload(metadata={"encoding": b"json/plain"}, data=b'"\xc3\xbf?>"')


def caller_of(tenant: str, scope: Scope = Scope.READ) -> Caller:
    """Somebody with a key."""
    return Caller(tenant=tenant, key=new_api_key(tenant=tenant, scope=scope)[0])


def body_of(*payloads: Payload) -> CodecBody:
    """What the Web UI would send."""
    listed = [
        {
            "metadata": {name: base64.b64encode(value).decode() for name, value in payload.metadata.items()},
            "data": base64.b64encode(payload.data).decode(),
        }
        for payload in payloads
    ]
    return read_body(CodecBody, {"payloads": listed})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("tenant", "caller", "shown"),
    [
        ("blue", caller_of("blue"), True),
        ("blue", caller_of("red"), False),
        ("blue", caller_of("red", Scope.ADMIN), False),
        ("blue", caller_of("default", Scope.ADMIN), False),
        ("default", caller_of("default"), True),
        (None, caller_of("blue", Scope.ADMIN), False),
        (None, caller_of("default", Scope.WRITE), False),
        (None, caller_of("default", Scope.ADMIN), True),
        ("blue", Caller(), True),
        (None, Caller(), True),
    ],
)
def test_a_payload_is_shown_to_those_alone_whose_it_is(tenant: str | None, caller: Caller, shown: bool) -> None:
    """One of no job to the operators; everything to everybody as long as there are no keys, which is on this machine only."""
    body = body_of(PAYLOAD, CIPHERS.seal(PAYLOAD, tenant=tenant))
    if not shown:
        with pytest.raises(ForeignPayload, match="payloads/1: of"):
            decode_payloads(body, CIPHERS, caller=caller)
        return
    answer = decode_payloads(body, CIPHERS, caller=caller)
    assert [base64.b64decode(each.data) for each in answer.payloads] == [PAYLOAD.data] * 2
    assert base64.b64decode(answer.payloads[1].metadata["encoding"]) == b"json/plain"


def test_what_claims_to_be_ones_own_is_not_shown() -> None:
    """The mark is believed only where it was encrypted with it."""
    sealed = CIPHERS.seal(PAYLOAD, tenant="red")
    sealed.metadata["horarium-tenant"] = b"blue"
    with pytest.raises(InvalidRequest) as caught:
        decode_payloads(body_of(sealed), CIPHERS, caller=caller_of("blue"))
    assert caught.value.errors[0].pointer == "/payloads/0"


def test_a_missing_key_is_named() -> None:
    """With the payload that needs it."""
    sealed = Ciphers([new_key("other")]).seal(PAYLOAD, tenant="blue")
    with pytest.raises(InvalidRequest, match=r"payloads\.1: a payload is encrypted with key 'other'"):
        decode_payloads(body_of(PAYLOAD, sealed), CIPHERS, caller=caller_of("blue"))


def test_what_is_encrypted_is_the_callers() -> None:
    """And comes back as it was."""
    sealed = encode_payloads(body_of(PAYLOAD), CIPHERS, caller=caller_of("blue", Scope.WRITE))
    again = read_body(CodecBody, sealed.model_dump())
    assert (
        decode_payloads(again, CIPHERS, caller=caller_of("blue")).payloads[0].data
        == base64.b64encode(PAYLOAD.data).decode()
    )
    with pytest.raises(ForeignPayload):
        decode_payloads(again, CIPHERS, caller=caller_of("red"))


@pytest.mark.parametrize("data", ["Ij/DvyI=", "Ij_DvyI=", "Ij_DvyI", "", None])
def test_base64_is_taken_in_every_form_of_protobufs_json(data: str | None) -> None:
    """Members that a later release of Temporal adds are left out."""
    value: Any = {"payloads": [{"data": data, "external": [1]}], "more": {}}
    [payload] = read_body(CodecBody, value).payloads
    assert payload.data in (b'"?\xc3\xbf"', b"")


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ([], ""),
        ({}, "/payloads"),
        ({"payloads": {}}, "/payloads"),
        ({"payloads": ["x"]}, "/payloads/0"),
        ({"payloads": [{"data": "a"}]}, "/payloads/0/data"),
        ({"payloads": [{"data": "ab c"}]}, "/payloads/0/data"),
        ({"payloads": [{"data": "é"}]}, "/payloads/0/data"),
        ({"payloads": [{"data": 1}]}, "/payloads/0/data"),
        ({"payloads": [{"metadata": {"encoding": "!"}}]}, "/payloads/0/metadata/encoding"),
        ({"payloads": [{"metadata": []}]}, "/payloads/0/metadata"),
    ],
)
def test_what_is_no_payload_is_refused_at_its_place(value: Any, pointer: str) -> None:
    """As every body is."""
    with pytest.raises(InvalidRequest) as caught:
        read_body(CodecBody, value)
    assert caught.value.errors[0].pointer == pointer


@pytest.mark.parametrize(
    ("ui_url", "origins"),
    [
        (None, ()),
        ("https://temporal.example.com/", ("https://temporal.example.com",)),
        ("http://ui.example.com:8080/base", ("http://ui.example.com:8080",)),
        (
            "http://127.0.0.1:8233",
            ("http://localhost:8233", "http://127.0.0.1:8233", "http://[::1]:8233"),
        ),
    ],
)
def test_only_the_web_ui_may_ask_from_a_browser(ui_url: str | None, origins: tuple[str, ...]) -> None:
    """On this machine it has several names."""
    assert origins_of(ui_url) == origins


def test_the_page_says_which_key_the_browser_has() -> None:
    """By its id, and never as code."""
    assert "no key" in codec_page(key_id=None, is_on=True)
    assert "abc" in codec_page(key_id="abc", is_on=True)
    assert "nothing to show" in codec_page(key_id=None, is_on=False)
    assert "<script>" not in codec_page(key_id="<script>", is_on=True, problem="<script>")


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(1)</script>",
        '"><a href="javascript:alert(1)">x</a>',
        "{{7*7}}",
        "{0.__class__}",
        "{forget}",
    ],
)
def test_sb_150_what_somebody_gave_is_shown_as_text(text: str) -> None:
    """Whatever it looks like: markup, a script, a link, or a template of this page or of another language."""
    for page, plain in (
        (codec_page(key_id=text, is_on=True), codec_page(key_id="x", is_on=True)),
        (codec_page(key_id="x", is_on=True, problem=text), codec_page(key_id="x", is_on=True, problem="x")),
    ):
        assert escape(text) in page
        assert re.findall("<[^>]*>", page) == re.findall("<[^>]*>", plain)
