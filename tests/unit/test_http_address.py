"""Which addresses and URLs an ``http`` target may have."""

from ipaddress import ip_address

import pytest

from activities.http_address import AddressRefused, Allowance, check_addresses, parse_allowance, refusal_of
from activities.http_url import InvalidUrl, looks_internal, read_url

NOTHING = Allowance()

INTERNAL = [
    *("0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.254", "10.0.0.1", "10.255.255.255"),
    *("172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.0.1", "100.64.0.1", "100.127.255.255"),
    *("192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7"),
    *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    *("::", "::1", "::2", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "fc00::1", "fd12:3456::1"),
    *("ff02::1", "ff0e::1", "2001:db8::1", "2001::1", "2001:10::1", "2001:20::1", "3fff::1", "5f00::1", "100::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1"),
    *("fd00:ec2::254", "fd20:ce::254", "4000::1", "c000::1"),
]
"""Of the registries for special-purpose addresses (RFC 6890 and what came after), and where clouds keep credentials."""

PUBLIC = [
    *(
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
    ),
    *(
        "169.253.255.255",
        "169.255.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.255.255",
        "192.169.0.1",
        "223.255.255.255",
    ),
    *("2606:4700:4700::1111", "2a00:1450:4001::1", "2400:cb00::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"),
]


@pytest.mark.parametrize("address", INTERNAL)
def test_what_is_not_public_is_refused(address: str) -> None:
    """Private, loopback, link-local, shared, reserved, multicast, unspecified, and all that stand for such in IPv6."""
    assert refusal_of(ip_address(address.partition("%")[0]))
    with pytest.raises(AddressRefused, match="HORARIUM_HTTP_ALLOW"):
        check_addresses("bank.example", [address], allowance=NOTHING)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_reached(address: str) -> None:
    """Their neighbours on both sides included."""
    assert check_addresses("bank.example", [address], allowance=NOTHING) == [address]


def test_one_internal_address_is_enough() -> None:
    """A name that has both is a trap, whichever would be taken."""
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
        check_addresses("bank.example", ["8.8.8.8", "10.0.0.1"], allowance=NOTHING)


def test_hosts_and_networks_are_let_through_by_setting() -> None:
    """A host in any case and with its last dot; an address is a network of one."""
    allowance = parse_allowance(["Hooks.Internal", "10.1.0.0/16", "127.0.0.1", "[fd00::1]"])
    for host, address in [
        ("hooks.internal", "192.168.3.4"),
        ("HOOKS.INTERNAL.", "127.0.0.9"),
        ("any.example", "10.1.2.3"),
        ("any.example", "::ffff:10.1.2.3"),
        ("any.example", "127.0.0.1"),
        ("any.example", "fd00::1"),
    ]:
        assert check_addresses(host, [address], allowance=allowance) == [address]
    for host, address in [("any.example", "10.2.0.1"), ("any.example", "127.0.0.2"), ("x.hooks.internal", "10.2.0.1")]:
        with pytest.raises(AddressRefused):
            check_addresses(host, [address], allowance=allowance)


def test_a_host_that_is_allowed_does_not_lead_to_the_credentials_of_a_cloud() -> None:
    """Only their address itself opens them."""
    with pytest.raises(AddressRefused, match="metadata"):
        check_addresses("hooks.internal", ["169.254.169.254"], allowance=parse_allowance(["hooks.internal"]))
    by_address = parse_allowance(["169.254.169.254"])
    assert check_addresses("any.example", ["169.254.169.254"], allowance=by_address)


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "http://x", "x:80", "*.internal", "10.0.0.0/99", "/"])
def test_a_setting_that_means_nothing_is_refused(entry: str) -> None:
    """Rather than open less, or more, than somebody thinks."""
    with pytest.raises(ValueError, match="host names, addresses, and networks"):
        parse_allowance([entry])


@pytest.mark.parametrize(
    "url",
    [
        "https://u:S3CR3T@bank.example/",
        "https://u@bank.example/",
        "https://@bank.example/",
        "http://bank.example:80@evil.example/",
        "http://bank.example\\@evil.example/",
        "ftp://bank.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "gopher://bank.example/",
        "//bank.example/",
        "bank.example/x",
        "http:bank.example",
        "http:///x",
        "",
        "http://",
        "http://bank.example/a b",
        "http://bank.example/\r\nX-Evil: 1",
        "http://bank.example/\x00",
        "http://bank.example/\u2028",
        "http://bank.example/#top",
        "http://bank.example:0/",
        "http://bank.example:65536/",
        "http://bank.example:x/",
        "http://bank..example/",
        "http://%6cocalhost/",
        "http://127%2e0.0.1/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://[v1.x]/",
        "http://0177.0.0.1/",
        "http://" + "a" * 64 + ".example/",
        "http://bank.example/" + "x" * 2_048,
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    """And not repeated, for it may hold a secret."""
    with pytest.raises(InvalidUrl) as refusal:
        read_url(url)
    assert "S3CR3T" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("https://bank.example", b"bank.example", b"/"),
        ("HTTPS://BANK.example:8443/a/../b?x=1&y=@", b"bank.example", b"/b?x=1&y=@"),
        ("http://bücher.example/ü", b"xn--bcher-kva.example", b"/%C3%BC"),
        ("http://my_host.example./", b"my_host.example.", b"/"),
        ("http://[2606:4700::1111]:8080/x", b"2606:4700::1111", b"/x"),
        ("http://8.8.8.8/", b"8.8.8.8", b"/"),
    ],
)
def test_urls_are_read_as_they_are_sent(url: str, host: bytes, target: bytes) -> None:
    """Dots in the path are resolved, and what is not ASCII is encoded."""
    read = read_url(url)
    assert (read.raw_host, read.raw_path) == (host, target)


@pytest.mark.parametrize(
    ("url", "internal"),
    [
        ("http://127.0.0.1/", True),
        ("http://127.1/", True),
        ("http://2130706433/", True),
        ("http://0x7f.1/", True),
        ("http://0/", True),
        ("http://[::1]/", True),
        ("http://localhost/", True),
        ("http://api.localhost/", True),
        ("http://vault/", True),
        ("http://metadata.google.internal/", True),
        ("https://bank.example/", False),
        ("https://8.8.8.8/", False),
    ],
)
def test_a_url_that_names_something_internal_is_known_as_such(url: str, internal: bool) -> None:
    """Registration warns of it; whether it is reached is the worker's to say."""
    assert looks_internal(read_url(url)) is internal
