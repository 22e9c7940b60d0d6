"""Which addresses only this machine can reach. Pure."""

import ipaddress
from typing import Final

LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


def is_loopback(host: str) -> bool:
    """Say whether nobody but this machine can connect to an address; a name that may stand for anything is none."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
