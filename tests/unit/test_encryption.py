"""What is encrypted, with which key, and what is said where one is missing."""

import base64
import dataclasses
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError

from horarium import HorariumPlugin
from horarium.encrypted_payload import CANNOT_DECRYPT, CannotDecrypt, key_id_of, tenant_of_payload
from horarium.encryption import Ciphers, EncryptionCodec, encrypting
from horarium.encryption_keys import (
    VARIABLE,
    EncryptionKey,
    InvalidKeys,
    draw_key,
    is_exposed,
    keys_of_environment,
    parse_keys,
    read_keys,
)
from tests.encryption import keys_file, new_key
from workers.encryption import ciphers_of
from workers.settings import InvalidSettings, Settings
from workflows.data_converter import DATA_CONVERTER

OLD, NEW = new_key("old"), new_key("new")
GOOD = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(range(1, 33))).decode()
SHORT = base64.b64encode(b"0123456789abcdef").decode()
PAYLOAD = Payload(metadata={"encoding": b"json/plain"}, data=b'{"card": "4111 1111"}')


def context_of(workflow_id: str) -> WorkflowSerializationContext:
    """A payload's context."""
    return WorkflowSerializationContext(namespace="default", workflow_id=workflow_id)


class TestKeys:
    """A file of keys."""

    def test_the_first_line_encrypts_and_comments_are_left_out(self) -> None:
        """Both alphabets of base64 are taken."""
        text = f"# rotated in June\n\n  2026-06  {GOOD}\r\n2025-12\t{OTHER.replace('+', '-').replace('/', '_')}\n"
        keys = parse_keys(text, name="keys")
        assert [key.key_id for key in keys] == ["2026-06", "2025-12"]
        assert [key.secret for key in keys] == [bytes(range(32)), bytes(range(1, 33))]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "keys: has no key; `horarium encryption new-key` makes one"),
            ("# nothing\n\n", "keys: has no key"),
            (GOOD, "keys:1: expected two words, `ID KEY`, and found 1"),
            (f"a {GOOD} b", "keys:1: expected two words, `ID KEY`, and found 3"),
            (f"a {SHORT}", "keys:1: the key 'a' has 16 bytes; AES-256 needs 32"),
            (f"a {GOOD}{GOOD}", "keys:1: the key 'a' is not base64"),
            ("a s3cret-and-no-base64!", "keys:1: the key 'a' is not base64"),
            (f"{GOOD} a", "keys:1: an id has 1 to 63 letters"),
            (f"a {GOOD}\n\na {OTHER}", "keys:3: the id 'a' stands on line 1 already"),
            (f"a {GOOD}\nb {GOOD}", "keys:2: the key 'b' is the same as 'a'"),
        ],
    )
    def test_a_wrong_file_is_refused_by_its_line(self, text: str, message: str) -> None:
        """And no message has a key in it, or what may be one."""
        with pytest.raises(InvalidKeys) as caught:
            parse_keys(text, name="keys")
        assert str(caught.value).startswith(message)
        for word in text.split():
            assert len(word) < 10 or word not in str(caught.value)

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        """One that is not there, a folder, and what is no text."""
        binary = tmp_path / "binary"
        binary.write_bytes(b"\xff\x00\x01")
        for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "directory"), (binary, "not text")):
            with pytest.raises(InvalidKeys, match=re.escape(str(path))) as caught:
                read_keys(path)
            assert reason in str(caught.value)

    def test_settings_say_which_is_wrong(self, tmp_path: Path) -> None:
        """In one line that names the variable, as of every setting."""
        with pytest.raises(InvalidSettings) as caught:
            ciphers_of(Settings(encryption_keys_file=tmp_path / "none"))
        assert str(caught.value).startswith("HORARIUM_ENCRYPTION_KEYS_FILE: ")
        assert ciphers_of(Settings()) is None

    def test_a_file_that_everybody_may_read_is_noticed(self, tmp_path: Path) -> None:
        """The group's is the operator's business: containers mount files for a group."""
        file = keys_file(tmp_path / "keys", "a")
        assert not is_exposed(file)
        file.chmod(stat.S_IRUSR | stat.S_IRGRP)
        assert not is_exposed(file)
        file.chmod(0o644)
        assert is_exposed(file)

    def test_keys_are_shown_by_their_ids_alone(self) -> None:
        """Wherever somebody prints one."""
        assert "secret" not in repr(OLD)
        assert OLD.key_id in repr(OLD)

    def test_a_new_key_is_a_line_of_a_file(self) -> None:
        """Each is another one; an id that cannot be one is refused."""
        first, second = draw_key("a"), draw_key("b")
        assert len(parse_keys(f"{first}\n{second}", name="keys")) == 2
        with pytest.raises(InvalidKeys, match="an id has"):
            draw_key("no id")


class TestCodec:
    """Encrypted, and decrypted."""

    async def test_what_is_encrypted_is_read_with_the_same_key(self) -> None:
        """Nothing of it is readable, and twice the same is not the same."""
        codec = EncryptionCodec(Ciphers([NEW, OLD]))
        first, second = await codec.encode([PAYLOAD, PAYLOAD])
        assert first.data != second.data
        assert key_id_of(first) == "new"
        assert b"4111" not in first.SerializeToString()
        assert b"json" not in first.SerializeToString()
        assert await codec.decode([first, second]) == [PAYLOAD, PAYLOAD]

    async def test_keys_change_without_a_gap(self) -> None:
        """Each of the three steps reads what every other one has written."""
        steps = [Ciphers(keys) for keys in ([OLD], [OLD, NEW], [NEW, OLD])]
        for earlier in steps[:2]:
            assert steps[1].open(earlier.seal(PAYLOAD, tenant=None)) == PAYLOAD
        for writer in steps[1:]:
            assert steps[2].open(writer.seal(PAYLOAD, tenant=None)) == PAYLOAD

    async def test_a_missing_key_is_named_and_nothing_is_lost(self) -> None:
        """The error is retryable: with the key the same payload is read."""
        sealed = Ciphers([NEW]).seal(PAYLOAD, tenant=None)
        with pytest.raises(CannotDecrypt) as caught:
            Ciphers([OLD]).open(sealed)
        assert "'new'" in caught.value.message
        assert "'old'" in caught.value.message
        assert (caught.value.type, caught.value.non_retryable) == (CANNOT_DECRYPT, False)

    @pytest.mark.parametrize("at", [0, 5, 11, 12, 20, -1])
    async def test_what_was_changed_is_not_read(self, at: int) -> None:
        """Neither a changed bit, nor what another key of the same id has encrypted, nor half of it."""
        ciphers = Ciphers([NEW])
        sealed = ciphers.seal(PAYLOAD, tenant=None)
        data = bytearray(sealed.data)
        data[at] ^= 1
        other = Ciphers([EncryptionKey("new", OLD.secret)]).seal(PAYLOAD, tenant=None)
        for wrong in (bytes(data), sealed.data[:at], b"", other.data):
            with pytest.raises(CannotDecrypt, match="'new'"):
                ciphers.open(Payload(metadata=sealed.metadata, data=wrong))

    async def test_a_payload_cannot_be_passed_off_as_another_tenants(self) -> None:
        """The tenant beside it is authenticated."""
        ciphers = Ciphers([NEW])
        sealed = ciphers.seal(PAYLOAD, tenant="blue")
        for metadata in ({"horarium-tenant": b"red"}, {"horarium-tenant": b""}):
            with pytest.raises(CannotDecrypt):
                ciphers.open(Payload(metadata=dict(sealed.metadata) | metadata, data=sealed.data))
        bare = {name: value for name, value in sealed.metadata.items() if name != "horarium-tenant"}
        with pytest.raises(CannotDecrypt):
            ciphers.open(Payload(metadata=bare, data=sealed.data))

    @pytest.mark.parametrize(
        ("workflow_id", "tenant"),
        [("job/blue/a", "blue"), ("attempt/blue/a:1/2", "blue"), ("orders/blue/1", None), ("job/", None), ("", None)],
    )
    async def test_a_payload_says_whose_it_is(self, workflow_id: str, tenant: str | None) -> None:
        """By the id of its workflow, where that is one of a job's."""
        [sealed] = await EncryptionCodec(Ciphers([NEW])).with_context(context_of(workflow_id)).encode([PAYLOAD])
        assert tenant_of_payload(sealed) == tenant

    async def test_catalogues_stay_in_the_clear(self) -> None:
        """Workers without keys look into them, and nobody's payload is there."""
        codec = EncryptionCodec(Ciphers([NEW])).with_context(context_of("catalogue/reports"))
        assert await codec.encode([PAYLOAD]) == [PAYLOAD]

    async def test_what_is_not_encrypted_passes(self) -> None:
        """Of the time before, and of other people's codecs."""
        foreign = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"theirs"}, data=b"...")
        assert await EncryptionCodec(Ciphers([NEW])).decode([PAYLOAD, foreign]) == [PAYLOAD, foreign]


class Backwards(PayloadCodec):
    """A codec of a team's own."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Turn bytes around."""
        return [Payload(metadata={"encoding": b"back"}, data=each.SerializeToString()[::-1]) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Turn them back."""
        return [
            Payload.FromString(each.data[::-1]) if each.metadata["encoding"] == b"back" else each for each in payloads
        ]


class TestConverter:
    """A client's data converter."""

    async def test_values_and_failures_are_encrypted(self) -> None:
        """Messages and stack traces too; the type stays, by which the Web UI and retries know a failure."""
        converter = encrypting(DATA_CONVERTER, [NEW])
        failure = Failure()
        error = ApplicationError("card 4111 was refused", {"card": "4111"}, type="Refused")
        error.__cause__ = ValueError("4111")
        await converter.encode_failure(error, failure)
        assert b"4111" not in failure.SerializeToString()
        assert failure.application_failure_info.type == "Refused"
        [value] = await converter.encode([{"card": "4111"}])
        assert b"4111" not in value.SerializeToString()
        read = await converter.decode_failure(failure)
        assert isinstance(read, ApplicationError)
        assert (read.message, list(read.details)) == ("card 4111 was refused", [{"card": "4111"}])
        assert str(read.__cause__) == "ValueError: 4111"

    async def test_a_missing_key_is_told_in_the_clear(self) -> None:
        """Or nobody could read which one it is."""
        failure = Failure()
        error = ApplicationError("Failed decoding arguments")
        error.__cause__ = CannotDecrypt("key 'x'")
        await encrypting(DATA_CONVERTER, [NEW]).encode_failure(error, failure)
        assert (failure.message, failure.cause.message) == ("Failed decoding arguments", "key 'x'")

    async def test_a_codec_of_a_teams_own_stays_within(self) -> None:
        """Both ways, and for what was written before."""
        own = dataclasses.replace(DataConverter.default, payload_codec=Backwards())
        both = encrypting(own, [NEW])
        [payload] = await both.encode(["x"])
        assert key_id_of(payload) == "new"
        assert await both.decode([payload]) == ["x"]
        assert await both.decode(await own.encode(["y"])) == ["y"]
        with_context = both.with_context(context_of("job/blue/a"))
        [payload] = await with_context.encode(["x"])
        assert tenant_of_payload(payload) == "blue"
        assert await with_context.decode([payload]) == ["x"]

    def test_a_failure_converter_of_a_teams_own_stays(self) -> None:
        """And so does a converter where there are no keys, or that encrypts already."""
        own = dataclasses.replace(DATA_CONVERTER, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
        changed = encrypting(own, [NEW])
        assert changed.failure_converter_class is DefaultFailureConverterWithEncodedAttributes
        assert changed.payload_converter_class is own.payload_converter_class
        assert encrypting(own, []) is own
        assert encrypting(changed, [OLD]) is changed


class TestPlugin:
    """The SDK's plugin."""

    def test_it_takes_the_keys_of_the_environment(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Or those of a file; a wrong one is refused at once."""
        monkeypatch.delenv(VARIABLE, raising=False)
        assert HorariumPlugin().data_converter is None
        monkeypatch.setenv(VARIABLE, str(keys_file(tmp_path / "keys", "a", "b")))
        assert [key.key_id for key in keys_of_environment()] == ["a", "b"]
        assert HorariumPlugin().data_converter is not None
        assert HorariumPlugin(encryption_keys=tmp_path / "keys").data_converter is not None
        monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
        with pytest.raises(InvalidKeys, match=VARIABLE):
            HorariumPlugin()
