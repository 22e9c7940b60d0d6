"""The encryption keys of a process, as its settings name them."""

import logging

from temporalio.converter import DataConverter

from horarium.encryption import Ciphers, encrypting
from horarium.encryption_keys import EncryptionKey, InvalidKeys, is_exposed, read_keys
from workers.settings import InvalidSettings, Settings, variable_of

logger = logging.getLogger(__name__)


def encrypted(converter: DataConverter, settings: Settings) -> DataConverter:
    """Let a converter encrypt what it writes, where there are keys. Raises ``InvalidSettings``."""
    keys = _keys_of(settings)
    if keys:
        logger.info("payloads are encrypted", extra={"keys": ",".join(key.key_id for key in keys)})
        _warn_if_exposed(settings)
    return encrypting(converter, keys)


def ciphers_of(settings: Settings) -> Ciphers | None:
    """Get the keys ready for use; ``None`` where there are none. Raises ``InvalidSettings``."""
    keys = _keys_of(settings)
    return Ciphers(keys) if keys else None


def key_ids_of(settings: Settings) -> tuple[str, ...]:
    """Name the keys, the one that encrypts first. Raises ``InvalidSettings``."""
    return tuple(key.key_id for key in _keys_of(settings))


def _keys_of(settings: Settings) -> tuple[EncryptionKey, ...]:
    if settings.encryption_keys_file is None:
        return ()
    try:
        return read_keys(settings.encryption_keys_file)
    except InvalidKeys as error:
        raise InvalidSettings(f"{variable_of('encryption_keys_file')}: {error}") from error


def _warn_if_exposed(settings: Settings) -> None:
    file = settings.encryption_keys_file
    if file is not None and is_exposed(file):
        logger.warning(
            "everybody on this machine may read or write the encryption keys; `chmod o-rw` keeps them to those who need them",
            extra={"file": str(file)},
        )
