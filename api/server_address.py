"""Which addresses only this machine can reach. Pure."""

import ipaddress
from typing import Final

LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


def may_be_lent(host: str) -> bool:
    """Say whether a name may be another site's, which its owner lets lead to this machine for a while (DNS rebinding).

    Nobody lends an address, nor a name without a dot, which no site has.
    """
    name = host.rstrip(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name and not name.endswith(".localhost")
    return False


def is_loopback(host: str) -> bool:
    """Say whether nobody but this machine can connect to an address; a name that may stand for anything is none."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
