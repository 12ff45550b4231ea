"""Finds e-mail addresses, public IP addresses, passwords in URLs and in HTTP's Authorization header.

`redact.py` replaces what is found.
"""

import base64
import binascii
import ipaddress
import re

from data_prep.secrets.dummies import is_dummy_password, is_dummy_token
from data_prep.secrets.text import Span, Text

_MAX_LOCAL_BYTES = 64
_LOCAL = re.compile(rb"[A-Za-z0-9_%+][A-Za-z0-9._%+\-]*\Z")
_DOMAIN = re.compile(rb"@((?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}([A-Za-z]{2,24}))(?![A-Za-z0-9_@])")
_LOCAL_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_%+-")
_COUNTRIES = (
    "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc "
    "cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga gd "
    "ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg "
    "kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv "
    "mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa "
    "sb sc sd se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug "
    "uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw"
)
_GENERIC = (
    "com org net edu gov mil int info biz name pro aero coop museum mobi tel cat jobs travel asia post arpa dev app "
    "cloud tech email online site xyz blog page works world company systems solutions software engineering digital "
    "network team studio design science academy space global agency group life live today news zone media services "
    "support consulting ventures capital fund bank shop store club fun ninja guru rocks wtf codes computer games "
    "google microsoft apple amazon ibm sap bmw berlin hamburg paris london wien nyc tokyo moscow swiss institute "
    "university foundation ngo ong"
)
_TOP_LEVEL = frozenset((_COUNTRIES + " " + _GENERIC).encode().split())
_DUMMY_LOCALS = frozenset(
    b"user username name yourname your.name you your-name your_name youremail your.email your_email email "
    b"me someone somebody foo bar baz foobar test tester example sample nobody noreply no-reply donotreply "
    b"do-not-reply johndoe john.doe jane.doe janedoe recipient sender alice bob login account mail address".split()
)
_EXAMPLE_DOMAIN = re.compile(
    rb"(?:^|\.)(?:example|test|localhost|invalid|local|localdomain)$"
    rb"|(?:^|\.)(?:example[\w-]*|your-?[\w-]+|my-?(?:domain|company|site|host|email|server)|domain|some-?[\w-]*|"
    rb"e?mail|host(?:name)?|company|foo|bar|foobar|baz|acme|abc|xyz|sample|test|dummy|fake|server|website|site|corp)"
    rb"\.(?:com|org|net|io|co|edu|local|tld|de|dev|info|co\.uk)$"
)
_USER_INFO = re.compile(rb"://[^\s\"'`/]{0,150}\Z")


def email_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the address whose @ is at `at`, unless it is an example, a remote (git@host:path) or code (x@y.T)."""
    data = text.data
    if at == 0 or data[at - 1] not in _LOCAL_BYTES:
        return None
    domain = _DOMAIN.match(data, at)
    if (
        domain is None
        or domain[2].lower() not in _TOP_LEVEL
        or not (domain[2].islower() or domain[2].isupper())
    ):
        return None
    before = data[max(0, at - _MAX_LOCAL_BYTES) : at]
    local = _LOCAL.search(before)
    if local is None:
        return None
    start, end = at - len(local[0]), domain.end()
    if local[0].lower() in _DUMMY_LOCALS or is_example_domain(domain[1].lower()):
        return None
    if _is_remote(data, start, local[0], end):
        return None
    if text.is_python_code(start):
        return None
    return Span(start, end, "email")


def is_example_domain(domain: bytes) -> bool:
    """Return whether a lower-case domain is reserved for examples or common in examples."""
    return _EXAMPLE_DOMAIN.search(domain) is not None


def _is_remote(data: bytes, start: int, local: bytes, end: int) -> bool:
    """Return whether the match is a location and no address: git@host:path, ssh://git@host/path, https://name@host/."""
    if local in (b"git", b"hg", b"svn", b"cvs", b"anonymous", b"anoncvs"):
        return True
    return _USER_INFO.search(data[max(0, start - 160) : start]) is not None or data[end : end + 1] == b"("


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


_USER = re.compile(rb"://([^\s\"'`/?#@:<>{}()\[\]]{0,128}):([^\s\"'`/?#@<>]{1,256})@([A-Za-z0-9._-]{1,253})")
_TEMPLATE = re.compile(
    rb"^[$%].*|\$\{|\{[\w.]*\}|^\[.*\]$|^\*+$|%s|%\(|\.\.\.|[{}()]|^(?i:pass|passwd|pwd|pw|xxx+)$"
)
_BASIC = re.compile(rb"basic[ :=]{1,3}([A-Za-z0-9+/]{8,512}={0,2})(?![\w+/])", re.IGNORECASE)
_BEARER = re.compile(rb"bearer[ :=]{1,3}([A-Za-z0-9._~+/-]{20,2048}={0,2})", re.IGNORECASE)


def url_password_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the password in scheme://user:password@host, unless the host or user and password are examples."""
    match = _USER.match(text.data, at)
    if match is None:
        return None
    user, password, host = match[1], match[2], match[3].lower()
    if _TEMPLATE.search(password) or host == b"localhost" or is_example_domain(host):
        return None
    if b"." not in host and (password == user or is_dummy_password(password)):
        return None
    return Span(match.start(2), match.end(2), "url_password")


def basic_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the base64 of user:password after the word Basic."""
    match = _BASIC.match(text.data, at)
    if match is None:
        return None
    try:
        decoded = base64.b64decode(match[1] + b"=" * (-len(match[1]) % 4), validate=True)
    except binascii.Error:
        return None
    user, colon, password = decoded.partition(b":")
    if not colon or not password or not decoded.isascii() or not decoded.decode().isprintable():
        return None
    return Span(match.start(1), match.end(1), "url_password")


def bearer_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the token after the word Bearer; it has digits and letters, unlike the next word of a sentence."""
    match = _BEARER.match(text.data, at)
    if match is None:
        return None
    token = match[1]
    if not any(48 <= byte <= 57 for byte in token) or not any(byte > 64 for byte in token):
        return None
    return None if is_dummy_token(token) else Span(match.start(1), match.end(1), "service_token")
