"""E-mail addresses."""

import re

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
    if _is_example(local[0].lower(), domain[1].lower()) or _is_remote(data, start, local[0], end):
        return None
    if text.is_python_code(start):
        return None
    return Span(start, end, "email")


def is_example_domain(domain: bytes) -> bool:
    """Return whether a lower-case domain is reserved for examples or common in examples."""
    return _EXAMPLE_DOMAIN.search(domain) is not None


def _is_example(local: bytes, domain: bytes) -> bool:
    return local in _DUMMY_LOCALS or is_example_domain(domain)


def _is_remote(data: bytes, start: int, local: bytes, end: int) -> bool:
    """Return whether the match is a location and no address: git@host:path, ssh://git@host/path, https://name@host/."""
    if local in (b"git", b"hg", b"svn", b"cvs", b"anonymous", b"anoncvs"):
        return True
    return _USER_INFO.search(data[max(0, start - 160) : start]) is not None or data[end : end + 1] == b"("
