"""URLs that an ``http`` target may have. Where one leads is judged later, by address. Pure."""

import re
import socket
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import httpx

from activities.http_address import Address, refusal_of

URL_LIMIT: Final = 2_048
"""Characters: as much as servers and proxies are known to take."""

_SCHEMES: Final = ("http", "https")
_UNPRINTABLE: Final = re.compile(r"[\s\\\x00-\x20\x7f-\x9f]")
"""Also the backslash, which readers of URLs take for different things."""

_WITH_USER: Final = re.compile(r"[^/?#]*//[^/?#]*@")
_HOST: Final = re.compile(r"(?=.{1,254}$)([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_-]{1,63}\.?")
_LOCAL_NAME: Final = re.compile(r"(.+\.)?(localhost|local|internal|localdomain|home\.arpa)|[^.]+", re.IGNORECASE)


class InvalidUrl(ValueError):
    """Not a URL that can be requested. The text says why, and never what was given: it may hold a secret."""


def read_url(text: str) -> httpx.URL:
    """Read a URL. Raises ``InvalidUrl``."""
    if len(text) > URL_LIMIT:
        raise InvalidUrl(f"{len(text)} characters; {URL_LIMIT} are allowed")
    if found := _UNPRINTABLE.search(text):
        raise InvalidUrl(f"spaces, line breaks, control characters and \\ are not accepted (character {found.start()})")
    if _WITH_USER.match(text):
        raise InvalidUrl("a user and a password are not accepted here: put a secret reference into a header")
    if "#" in text:
        raise InvalidUrl("a fragment (#...) is never sent to the server")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        raise InvalidUrl("not a URL") from error
    if url.scheme not in _SCHEMES:
        raise InvalidUrl("begin with https:// or http://")
    if not url.host:
        raise InvalidUrl("the host is missing")
    if _address_in(url) is None and not _HOST.fullmatch(url.raw_host.decode()):
        raise InvalidUrl("the host is no name and no address")
    if url.port is not None and not 1 <= url.port <= 65_535:
        raise InvalidUrl("there is no such port")
    return url


def looks_internal(url: httpx.URL) -> bool:
    """Say whether a URL names, by its host alone, what workers do not reach unless they are allowed to."""
    address = _address_in(url)
    if address is not None:
        return refusal_of(address) is not None
    return _LOCAL_NAME.fullmatch(url.host.rstrip(".")) is not None


def _address_in(url: httpx.URL) -> Address | None:
    """Read a host that is an address, as name resolution will: 127.1, 0x7f.1 and 2130706433 are the same one."""
    host = url.raw_host.decode()
    if ":" in host:
        try:
            # A zone (%eth0) is an interface of this machine.
            return None if "%" in host else IPv6Address(host)
        except ValueError:
            return None
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
