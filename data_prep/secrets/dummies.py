"""Values that are not real secrets: examples, templates, references, type names, messages."""

import re

from data_prep.secrets.randomness import is_words

_TEMPLATE = re.compile(
    rb"^(?:\$\{?[A-Za-z_][\w.]*\}?|\$\(.*\)|\$\{.*\}|\{.*\}|<.*>|\[.*\]|%.*%|__.*__|@.*@|#\{.*\}|\*+|ENC\(.*\))$"
    rb"|<%|%>|(?<!\w)%[sdrv](?!\w)|%\(\w+\)|[$#]\{[\w.:-]+\}|\$\(|\{\{[^}]*\}\}|(?<!\{)\{[\w.]{0,40}\}(?!\})|\\\(",
    re.DOTALL,
)
_MARKERS = re.compile(
    rb"example|dummy|fake|placeholder|change_?-?me|redacted|xxxx|\*\*\*|\.\.\.|sample|your[_ -]|yoursecret|yourpass|"
    rb"yourkey|my[_ -]?(?:secret|pass|token|api|key|super)|insert|not[_ -]?(?:a|real|the|so)|password|"
    rb"passwd|passphrase|(?:^|[\W_])(?:secret|pwd|api[_-]?key|token)(?:[\W_]|$)|\btodo\b|test(?!\w{6})|foobar|s3cr3t|sekret|replace|"
    rb"enter[_ -]|mock|lorem|invalid|wrong|incorrect|unknown|default|super[_-]?secret|top[_-]?secret|thisis|"
    rb"<[a-z_ -]+>|deadbeef|0123456|1234567|abcdef|abc123|qwerty|\(\?[:=!<P]|^\\u|\\[bswd]",
    re.IGNORECASE,
)
_WORDS = frozenset(
    b"string str text boolean bool number integer int object array null none nil true false undefined required "
    b"optional hidden hash plain base64 bytes binary basic bearer value values key keys secret secrets pass pwd token "
    b"tokens auth oauth oauth2 apikey user users admin root guest name username email login id uuid data file path "
    b"files compat systemd nis "
    b"url input field label title type kind opaque header query body cookie session config env environment vault "
    b"ldap kerberos digest md5 sha1 sha256 sha512 bcrypt scrypt argon2 aes rsa dsa ecdsa ed25519 hmac des pkcs8 pem "
    b"der raw hex foo bar baz spam eggs abc abcd asdf blah bandpass lowpass highpass "
    b"warn ignore skip raise fail strict deny allow store ok reject accept something anything whatever "
    b"nothing empty yes no on off "
    b"auto ask prompt new old current confirm reset change forgot show hide enabled disabled always never public "
    b"private internal external master slave primary secondary client server app api web demo temp tmp debug "
    b"get set post put delete update create read write keyring getpass self this cls".split()
)
_STOP_WORDS = frozenset(
    b"the a an is are be was were must not your please enter type for to of in on or if this that it its as by has "
    b"have been can cannot can't could should will would may do does don't did invalid incorrect wrong required "
    b"missing new old confirm choose which when used use using from at no only than too least set "
    b"changed forgot reset sent key keys token secret api "
    b"contains characters change hide show user's show you we authentication expired failed error warning empty".split()
)
_NAME_LIKE = re.compile(rb"[A-Za-z]+(?:[-_./:][A-Za-z]+)+")
_UUID = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_CONSTANT = re.compile(rb"[A-Z]+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_LETTER = re.compile(rb"[A-Za-z]")
_CALL = re.compile(rb"[\w.$>:-]+[\[(].*[\])]")
# A variable, a call, a YAML anchor, alias, tag or block; an opening bracket.
_REFERENCE = re.compile(rb"[$({\[`]|[*&][\w-]+$|![\w!]*[A-Za-z][\w!]*(?:[ \t]|$)|[|>][+-]?\d?$")
_TOKEN_MARKERS = re.compile(
    rb"example|your|x{8}|\.\.\.|\*\*\*|redacted|placeholder|abcdefgh|12345678", re.IGNORECASE
)
_MIN_PASSWORD_BYTES = 4
_MIN_DISTINCT_BYTES = 4


def is_dummy_password(value: bytes) -> bool:
    """Return whether a value assigned to a password or a secret is clearly not a real one."""
    if len(value) < _MIN_PASSWORD_BYTES or not _LETTER.search(value) or len(set(value)) < _MIN_DISTINCT_BYTES:
        return True
    if _TEMPLATE.search(value) or _MARKERS.search(value) or value.lower() in _WORDS:
        return True
    if b" " in value or b"\t" in value:
        return _is_message(value)
    if value.isalpha() and is_words(value):
        return True
    return is_path(value) or any(form.fullmatch(value) for form in (_NAME_LIKE, _CONSTANT, _UUID))


def is_dummy_token(value: bytes) -> bool:
    """Return whether a token of a known form is an example from documentation."""
    return _TOKEN_MARKERS.search(value) is not None or len(set(value[-12:])) < _MIN_DISTINCT_BYTES


def is_reference(value: bytes) -> bool:
    """Return whether an unquoted value is a call, a subscript, a variable, an anchor or other syntax."""
    return _REFERENCE.match(value) is not None or _CALL.match(value) is not None


def is_path(value: bytes) -> bool:
    """Return whether the value is a path or a URL: words between slashes."""
    if b"://" in value or value.startswith((b"/", b"./", b"../", b"~/", b"\\\\")):
        return True
    return value.count(b"/") > 1 and max(map(len, value.split(b"/"))) < 20 and b"+" not in value


def _is_message(value: bytes) -> bool:
    if value[-1:] in b".:!?,)(>" or b"%" in value or b"\\n" in value:
        return True
    words = value.lower().split()
    return _WORDS.issuperset(words) or not _STOP_WORDS.isdisjoint(words) or len(words) > 12 or b"=" in value
