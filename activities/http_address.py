"""Which addresses an ``http`` target may reach.

Everything that is not plainly a public unicast address is refused: a job's author names a host, and must not thereby reach what
only this machine, its network or its cloud can reach (server-side request forgery). Addresses are judged after name resolution,
by number, so that no spelling of a name or an address matters. Pure.

The tables are those of the IANA registries for special-purpose addresses, written out because Python's own idea of "global"
differs between releases.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_NOT_PUBLIC: Final[dict[str, str]] = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a carrier",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "for documentation",
    "192.88.99.0/24": "reserved",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "for benchmarks",
    "198.51.100.0/24": "for documentation",
    "203.0.113.0/24": "for documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/128": "unspecified",
    "::1/128": "loopback",
    "64:ff9b:1::/48": "private",
    "100::/64": "reserved",
    "2001::/23": "reserved",
    "2001:db8::/32": "for documentation",
    "2002::/16": "reserved",
    "3fff::/20": "for documentation",
    "5f00::/16": "reserved",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
}
"""2001::/23 has Teredo in it and 2002::/16 is 6to4: both carry an IPv4 address, and neither serves HTTP to anybody."""

_REFUSED: Final = tuple((ip_network(network), kind) for network, kind in _NOT_PUBLIC.items())

_PUBLIC_IPV6: Final = IPv6Network("2000::/3")
"""What IANA has handed out for unicast; all else is reserved."""

_EMBEDDING: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""IPv4-mapped addresses, and those of NAT64, which is how an IPv6-only network reaches the rest: they stand for the IPv4 address
in their last 32 bits."""

_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            *("169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23"),
            *("fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
        ),
    )
)
"""Where clouds tell a machine its own credentials: AWS and those who do as it does, Google over IPv6, Alibaba, Oracle and Azure,
whose address would be public by its number."""


class AddressRefused(Exception):
    """A host stands for an address that may not be reached."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What is let through although it is not public: ``HORARIUM_HTTP_ALLOW``."""

    hosts: frozenset[str] = frozenset()
    """May resolve to any address but the clouds' own, which only ``networks`` can allow."""

    networks: tuple[Network, ...] = ()

    def covers(self, host: str, address: Address) -> bool:
        """Say whether an address is allowed, for this host."""
        if any(address in network for network in self.networks):
            return True
        return _folded(host) in self.hosts and address not in _METADATA


def parse_allowance(entries: Iterable[str]) -> Allowance:
    """Read host names, addresses and networks (``10.1.0.0/16``). Raises ``ValueError`` for one that is none of these."""
    hosts, networks = set[str](), list[Network]()
    for entry in entries:
        try:
            networks.append(ip_network(entry.strip("[]")))
        except ValueError:
            if "/" in entry or ":" in entry or "*" in entry or not _folded(entry):
                raise ValueError("give host names, addresses, and networks such as 10.1.0.0/16") from None
            hosts.add(_folded(entry))
    return Allowance(hosts=frozenset(hosts), networks=tuple(networks))


def check_addresses(host: str, addresses: Iterable[str], *, allowance: Allowance) -> list[str]:
    """Give back the addresses of a host, in their order, if every one of them may be reached.

    Raises ``AddressRefused``: one that may not is reason enough, for whoever mixes the two means no good.
    """
    checked = list[str]()
    for text in addresses:
        address = _embedded(ip_address(text.partition("%")[0]))
        kind = refusal_of(address)
        if kind is not None and not allowance.covers(host, address):
            raise AddressRefused(
                f"{host} is at {text}, an address that is {kind}; the worker's HORARIUM_HTTP_ALLOW does not allow it"
            )
        checked.append(text)
    return checked


def refusal_of(address: Address) -> str | None:
    """Say why an address is not reached unless it is allowed; ``None`` for a public one."""
    address = _embedded(address)
    if address in _METADATA:
        return "for the metadata of a cloud"
    for network, kind in _REFUSED:
        if address in network:
            return kind
    return None if isinstance(address, IPv4Address) or address in _PUBLIC_IPV6 else "reserved"


def _embedded(address: Address) -> Address:
    if isinstance(address, IPv6Address) and any(address in network for network in _EMBEDDING):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _folded(host: str) -> str:
    return host.strip().rstrip(".").lower()
