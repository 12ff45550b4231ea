"""Public IP addresses."""

import ipaddress
import re

from data_prep.secrets.text import Span, Text

_OCTET = rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]\d|\d)"
_IPV4 = re.compile(rb"(?<![\w.])" + rb"\.".join([rb"(" + _OCTET + rb")"] * 4) + rb"(?!\w|\.\w)")
_IPV6 = re.compile(rb"(?<![\w:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,34}(?!\w|\.\w)")
_MAX_OCTET_DIGITS = 3
# A version's numbers are small; an address with four small numbers is distinguished from it by its context.
_MAX_VERSION_NUMBER = 25
_MAX_SECTION_NUMBER = 12
_CONTEXT_BYTES = 48
_ADDRESS_WORDS = re.compile(
    rb"(?:^|[^a-z])(?:ip|ips|ipv0|ip_?addr\w*|addr\w*|host\w*|server\w*|dns|nameserver\w*|gateway|ping|proxy|remote\w*|"
    rb"client\w*|bind|connect\w*|ssh|subnet|netmask|resolver\w*)[^a-z]|://$|@$"
)
_VERSION_WORDS = re.compile(
    rb"version|\bver\b|release|revision|\brev\b|build|upgrade|changelog|since|require|assembly|\boid|section|"
    rb"chapter|appendix|clause|figure|\bpackage|[<>=~^]=\s*[\"']?$|(?:^|[^a-z])v$|[a-z0][-_/]$|\$$|\xa7"
)
_VERSION_TAIL = re.compile(rb"[-+](?:alpha|beta|rc|snapshot|dev|pre|final|release|\d)", re.IGNORECASE)
_OIDS = (b"0.", b"1.2.", b"1.3.", b"2.5.", b"2.16.", b"2.23.")


def ipv4_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the public IPv4 address whose first number's last digit is at `at`; versions are not reported."""
    data = text.data
    start = at
    while start > 0 and at - start < _MAX_OCTET_DIGITS and 48 <= data[start - 1] <= 57:
        start -= 1
    match = _IPV4.match(data, start)
    if match is None:
        return None
    octets = tuple(map(int, match.groups()))
    if (
        not _is_public(octets)
        or _is_network(text.data, match.end(), octets)
        or _looks_like_version(text, start, match.end(), octets)
    ):
        return None
    return Span(start, match.end(), "ip_address")


def ipv6_at(text: Text, start: int, _end: int) -> Span | None:
    """Return the public IPv6 address that starts at `start`; all allocated ones start with a 2 or a 3."""
    match = _IPV6.match(text.data, start)
    if match is None:
        return None
    found = match[0].rstrip(b":") if not match[0].endswith(b"::") else match[0]
    try:
        address = ipaddress.IPv6Address(found.decode())
    except ValueError:
        return None
    if not address.is_global or address.packed[2:] == bytes(14):
        return None
    return Span(start, start + len(found), "ip_address")


def _is_public(octets: tuple[int, ...]) -> bool:
    first, second, third, fourth = octets
    if first in (0, 10, 127) or first >= 224 or (second, third, fourth) == (0, 0, 0):
        return False
    if (first, second) in ((169, 254), (192, 168), (198, 18), (198, 19)):
        return False
    if (first == 172 and 16 <= second < 32) or (first == 100 and 64 <= second < 128):
        return False
    return (first, second, third) not in (
        (192, 0, 0),
        (192, 0, 2),
        (192, 88, 99),
        (198, 51, 100),
        (203, 0, 113),
    )


def _is_network(data: bytes, end: int, octets: tuple[int, ...]) -> bool:
    """Return whether the address is a network, as in 18.68.0.0/16, or a repeated digit, as in 4.4.4.4."""
    if octets[3] == 0 and data[end : end + 1] == b"/":
        return True
    return len(set(octets)) == 1 and octets[0] in (2, 3, 4, 5, 6, 7, 9)


def _looks_like_version(text: Text, start: int, end: int, octets: tuple[int, ...]) -> bool:
    before = text.folded[max(0, start - _CONTEXT_BYTES) : start]
    before = before[before.rfind(b"\n") + 1 :]
    if _VERSION_TAIL.match(text.data, end) or _VERSION_WORDS.search(before):
        return _ADDRESS_WORDS.search(before) is None
    if text.data.startswith(_OIDS, start) and max(octets) <= 100:
        return True
    small = max(octets) <= _MAX_VERSION_NUMBER and len(set(octets)) > 1
    small |= len(set(octets)) > 1 and max(octets[:3]) <= _MAX_SECTION_NUMBER and octets[3] <= 99
    return small and text.data[end : end + 1] != b":" and _ADDRESS_WORDS.search(before) is None
