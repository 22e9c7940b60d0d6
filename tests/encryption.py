"""Keys that payloads are encrypted with, for tests."""

from pathlib import Path

from temporalio.client import Client

from horarium.encryption import encrypting
from horarium.encryption_keys import EncryptionKey, draw_key, parse_keys
from workers.devserver import DevServer
from workflows.data_converter import DATA_CONVERTER


def new_key(key_id: str) -> EncryptionKey:
    """Make a key."""
    [key] = parse_keys(draw_key(key_id), name="test")
    return key


def keys_file(path: Path, *key_ids: str) -> Path:
    """Write a file with new keys."""
    path.write_text("\n".join(draw_key(key_id) for key_id in key_ids))
    path.chmod(0o600)
    return path


async def connect_with(server: DevServer, *keys: EncryptionKey) -> Client:
    """Connect as Horarium does with keys, the first of which encrypts."""
    return await Client.connect(server.options.address, data_converter=encrypting(DATA_CONVERTER, keys))
