"""The keys that payloads are encrypted with: a file with one key a line, ``ID KEY``. No cryptography is needed to read it.

The first key encrypts, all of them decrypt. So keys change without downtime: first every process learns the new key, then it is
moved to the first line, and the old one stays for as long as anything is encrypted with it. No message has a key in it.
"""

import base64
import binascii
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

VARIABLE: Final = "HORARIUM_ENCRYPTION_KEYS_FILE"

KEY_BYTES: Final = 32
"""AES-256."""

_KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_ID_WORDS: Final = "an id has 1 to 63 letters, digits, '.', '_' or '-', and begins with a letter or a digit"

_TO_STANDARD: Final = str.maketrans("-_", "+/")
"""Both alphabets of base64 are taken."""

_SIZE_LIMIT: Final = 1024 * 1024


class InvalidKeys(ValueError):
    """A file of keys cannot be used. The text says which line, and why."""


@dataclass(frozen=True)
class EncryptionKey:
    """One key."""

    key_id: str
    """Stands in the clear beside whatever is encrypted with the key."""

    secret: bytes = field(repr=False)


def keys_of_environment(environment: Mapping[str, str] | None = None) -> tuple[EncryptionKey, ...]:
    """Read the keys of the file that the environment names; none where it names none. Raises ``InvalidKeys``."""
    name = (os.environ if environment is None else environment).get(VARIABLE)
    try:
        return read_keys(Path(name)) if name else ()
    except InvalidKeys as error:
        raise InvalidKeys(f"{VARIABLE}: {error}") from error


def read_keys(file: Path) -> tuple[EncryptionKey, ...]:
    """Read the keys of a file, the one that encrypts first. Raises ``InvalidKeys``."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_SIZE_LIMIT + 1)
        text = content.decode("ascii")
    except OSError as error:
        raise InvalidKeys(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError:
        # Without its cause, which has the bytes.
        raise InvalidKeys(f"{file}: not text in ASCII; one key a line is expected, as `ID KEY`") from None
    if len(content) > _SIZE_LIMIT:
        raise InvalidKeys(f"{file}: larger than {_SIZE_LIMIT} bytes, which no file of keys is")
    return parse_keys(text, name=str(file))


def parse_keys(text: str, *, name: str) -> tuple[EncryptionKey, ...]:
    """Read keys from the text of a file called ``name``. Empty lines, and those that begin with ``#``, are left out.

    Raises ``InvalidKeys``.
    """
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1)]
    found = [
        (number, _parse_line(words, f"{name}:{number}")) for number, words in lines if words and words[0][0] != "#"
    ]
    if not found:
        raise InvalidKeys(f"{name}: has no key; `horarium encryption new-key` makes one")
    _refuse_duplicates(found, name)
    return tuple(key for _, key in found)


def is_exposed(file: Path) -> bool:
    """Say whether everybody on this machine may read a file, or write it."""
    return bool(file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))


def draw_key(key_id: str) -> str:
    """Make a key, as a line of a file of keys. Raises ``InvalidKeys`` for an id that cannot be one."""
    if not _KEY_ID.fullmatch(key_id):
        raise InvalidKeys(_ID_WORDS)
    return f"{key_id} {base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def _parse_line(words: Sequence[str], place: str) -> EncryptionKey:
    if len(words) != 2:
        raise InvalidKeys(f"{place}: expected two words, `ID KEY`, and found {len(words)}")
    key_id, encoded = words
    if not _KEY_ID.fullmatch(key_id):
        # It may be a key whose id was forgotten, and is not repeated.
        raise InvalidKeys(f"{place}: {_ID_WORDS}")
    try:
        secret = base64.b64decode(encoded.translate(_TO_STANDARD), validate=True)
    except binascii.Error:
        raise InvalidKeys(f"{place}: the key {key_id!r} is not base64") from None
    if len(secret) != KEY_BYTES:
        raise InvalidKeys(f"{place}: the key {key_id!r} has {len(secret)} bytes; AES-256 needs {KEY_BYTES}")
    return EncryptionKey(key_id, secret)


def _refuse_duplicates(found: Sequence[tuple[int, EncryptionKey]], name: str) -> None:
    ids: dict[str, int] = {}
    secrets_seen: dict[bytes, str] = {}
    for number, key in found:
        if (first := ids.setdefault(key.key_id, number)) != number:
            raise InvalidKeys(f"{name}:{number}: the id {key.key_id!r} stands on line {first} already")
        if (other := secrets_seen.setdefault(key.secret, key.key_id)) != key.key_id:
            raise InvalidKeys(f"{name}:{number}: the key {key.key_id!r} is the same as {other!r}")
