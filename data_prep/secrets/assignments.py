"""Literals that are assigned to, or compared with, a name like that of a secret."""

import re

from data_prep.secrets.dummies import is_dummy_password, is_path, is_reference
from data_prep.secrets.randomness import entropy_bits, is_random_base64, is_random_hex
from data_prep.secrets.text import Span, Text

# Every relevant name contains one of these.
ANCHORS = (b"key", b"_pw", b"pass", b"pwd", b"secret", b"token", b"contrase")

_OPERATOR = re.compile(
    rb"(?P<suffix>[\w-]{0,48}(?:\xc3\xb1a)?)(?P<close>\\?[\"'`]?\]?|\]?)(?:\[\d{0,9}\])?"
    rb"(?:[ \t]{0,16}:[ \t]{0,4}&?[A-Za-z_][\w.\[\]|]{0,40}(?:[ \t]{1,4}\|[ \t]{1,4}[\w.]{1,20})?(?=[ \t]{0,4}=[^=>]))?"
    rb"(?P<operator>[ \t]{0,16}(?::=|=>|={1,3}|!==?|::?=?|(?:\.assign)?\(|>|,)[ \t]{0,16}|[ \t]{0,16})"
    rb"(?P<prefix>@|[bBrRuUfFL]{0,2})(?P<quote>\\?[\"']|`|)"
)
_QUOTED = {
    b'"': re.compile(rb'((?:[^"\\\r\n]|\\.){1,512})"'),
    b"'": re.compile(rb"((?:[^'\\\r\n]|\\.){1,512})'"),
    b"`": re.compile(rb"([^`\r\n]{1,512})`"),
    b'\\"': re.compile(rb'([^"\\\r\n]{1,512})\\"'),
    b"\\'": re.compile(rb"([^'\\\r\n]{1,512})\\'"),
}
_OPEN_EXPRESSION = re.compile(rb"[$#]\{[^}]*\Z")
_ELEMENT = re.compile(rb"([^<>\r\n\"'{}]{1,256})</")
_BARE_LINE = re.compile(rb"([^\r\n]{1,512})")
# A database's connection string: "Server=db;User=me;Password=it;".
_SETTING = re.compile(rb"([^\s;\"'<>(){}\[\]]{4,128})[;\"']")
_SETTINGS_BEFORE = re.compile(rb"[\"'](?:[\w .-]{1,32}=[^;\"'=\n]{0,128};[ ]?){0,12}[\w .-]{0,32}\Z")
_SETTINGS_BYTES = 384
_LINE_START = re.compile(rb"[ \t]*+(?:(?:-|export|set|var|const|let)[ \t]++)?[\w.$/:@*-]*+\[?[\"']?[\w.-]*+")
_MAX_INDENT_BYTES = 96
_BARE_WORD = re.compile(rb"([^\s;&|()<>\"'`]{1,256})(?=[\s;&|]|\Z)")
_BARE_TOKEN = re.compile(rb"([A-Za-z0-9_+/-]{24,128}={0,2})(?![\w.(\[+/=-])")
_COMPARED = re.compile(rb"([\"'`])([^\"'`\r\n]{4,256})\1[ \t]{0,8}[!=]==?[ \t]{0,8}[\w.$>-]*\Z")
_DEFINED = re.compile(rb"(?:define|putenv|setenv)[ \t]*\([ \t]*\\?[\"'][\w]*\Z", re.IGNORECASE)
_NAME = re.compile(rb"[\w.:-]*\Z")

_STRONG = re.compile(
    rb"(?:api|auth|service|account|database|priv|private|client|access|encryption|encrypt|signing|master|shared|"
    rb"license|licence|softlayer|cloudant|(?:^|[^a-z])(?:db|session|jwt|hmac|aws|ibm|cloud|iam|sl|clou|cl))"
    rb"[_-]?(?:api[_-]?)?key|passw(?:or)?d|passwd|pwd|passphrase|secret|contrase|(?:^|[._-])pass$|"
    rb"(?:db|database|key|user|root|admin|login|mysql|smtp|ftp|sl|ibm|cl|softlayer|cloudant)[_-]?pass(?!ive)|"
    rb"(?:auth|access|api|bot|refresh|bearer|secret|cloudant|softlayer|session|personal|private|"
    rb"(?:^|[^a-z])(?:sl|cl|ibm))[_-]?token"
)
# Names of something about a secret, such as its length.
_ABOUT = re.compile(
    rb"(?:hash|hashed|ids?|name|names|field|fields|file|files|filename|path|dir|url|uri|type|label|help|prompt|msg|"
    rb"message|error|errors|policy|column|param|params|env|var|length|len|regex|re|pattern|placeholder|title|text|desc|"
    rb"description|hint|reset|format|arn|ref|provider|manager|store|version|algorithm|alg|size|count|min|max|index|"
    rb"prefix|suffix|class|selector|input|form|button|link|page|view|route|endpoint|handler|func|function|method|"
    rb"header|headers|mode|kind|scheme|source|from|strength|validator|validation|rules?|expir\w*|ttl|age|encoding|"
    rb"locale|icon|color|style|charset|chars|alphabet|regexp|usage|scope|scopes|owner|status|state|rotation|"
    rb"created\w*|updated\w*|at|list|set|map|dict|test|tests|exception|engine|backend|command|cmd|lookup|question)$"
)
_HASHED = re.compile(
    rb"hash|sha0|md0|checksum|digest|public|pub[_-]?key|fingerprint|integrity|commit|cache|sort|primary|foreign|"
    rb"partition|site[_-]?key|csrf|keyword|keyboard|keypress|keydown|keyup|keycode|::|keys$|next|page|cursor|continuation|"
    rb"cancel|keyid"
)
# A word in a comparison is usually an option, not a secret.
_COMPARISONS = (b"==", b"===", b"!=", b"!==")
_NAME_BYTES = 48
_MIN_TOKEN_BYTES = 16
_MIN_TOKEN_BITS = 3.5
_CLOUDANT_KEY = re.compile(rb"[a-z]{24}")
_CLOUDANT_NAME = re.compile(rb"(?:cloudant|clou|cl)[_-]?(?:api[_-]?)?(?:key|pw|pwd|pass|password|token)$")
_HEX_KEY = re.compile(rb"[a-z0-9]{64}|[0-9a-f]{48}")
_HEX_KEY_NAME = re.compile(rb"(?:^|[^a-z])(?:softlayer|sl|cloudant|clou|cl|ibm|cos)|secret")


def assigned_at(text: Text, start: int, end: int) -> Span | None:
    """Return the literal that belongs to the name with the anchor `start` to `end`, if it is a secret."""
    operator = _OPERATOR.match(text.data, end)
    if operator is None:
        return None
    quote = operator["quote"]
    found = (
        _value(text, start, operator)
        if quote or operator["operator"]
        else _adjacent_value(text, start, operator)
    )
    if found is None:
        return _compared(text, start, end)
    first, last = found
    before = _NAME.search(text.folded[max(0, start - _NAME_BYTES) : start])
    name = (before[0] if before else b"") + text.folded[start : operator.end("suffix")]
    value = text.data[first:last]
    if not _is_secret(name, value):
        return None
    if operator["operator"].strip() in _COMPARISONS and value.isalpha() and value.islower():
        return None
    return Span(first, last, "password")


def _value(text: Text, start: int, operator: re.Match[bytes]) -> tuple[int, int] | None:
    """Return the span of the value that the operator assigns to the name, without quotes."""
    data, sign, quote = text.data, operator["operator"].strip(), operator["quote"]
    if quote:
        match = _QUOTED[quote].match(data, operator.end())
        if match is None or not _is_assignment(text, start, operator, sign, match.end()):
            return None
        if b"f" in operator["prefix"].lower() and b"{" in match[1]:
            return None
        # The value ends inside a template's expression, whose quotes were taken for those of the value.
        if _OPEN_EXPRESSION.search(match[1]):
            return None
        return match.span(1)
    if sign == b">":
        match = _ELEMENT.match(data, operator.end("operator"))
        return match.span(1) if match and _is_tag(data, start) else None
    return _bare_value(text, start, operator, sign)


def _adjacent_value(text: Text, start: int, operator: re.Match[bytes]) -> tuple[int, int] | None:
    """Return the span of the value in name"value"; if the name itself is not in quotes."""
    close = operator["close"]
    if close not in (b'"', b"'"):
        return None
    match = _QUOTED[close].match(text.data, operator.end("close"))
    if match is None or text.data[match.end() : match.end() + 1] != b";":
        return None
    name = _NAME.search(text.data[max(0, start - _NAME_BYTES) : start])
    before = start - (len(name[0]) if name else 0)
    return None if text.data[before - 1 : before] == close else match.span(1)


def _is_assignment(text: Text, start: int, operator: re.Match[bytes], sign: bytes, end: int) -> bool:
    if sign == b"":
        # nginx and the like: password "value"; and options: --api-key "value"
        return text.data[end : end + 1] == b";" or _is_option(text.data, start)
    if sign in (b"(", b".assign("):
        return text.syntax.cpp and operator["quote"] == b'"' or sign == b".assign("
    if sign == b",":
        return (
            operator["close"][-1:] in (b'"', b"'")
            and _DEFINED.search(text.data[max(0, start - 64) : start]) is not None
        )
    return sign != b">"


def _is_tag(data: bytes, start: int) -> bool:
    opening = data.rfind(b"<", max(0, start - _NAME_BYTES), start)
    return opening >= 0 and data[opening + 1 : start].replace(b"-", b"").replace(b":", b"").isalnum() | (
        opening + 1 == start
    )


def _is_option(data: bytes, start: int) -> bool:
    before = _NAME.search(data[max(0, start - _NAME_BYTES) : start])
    return before is not None and before[0].startswith(b"--")


def _bare_value(text: Text, start: int, operator: re.Match[bytes], sign: bytes) -> tuple[int, int] | None:
    """Return the span of an unquoted value.

    In configuration it may be any value, in Go one that is not valid Go, elsewhere a long random one.
    """
    at = operator.end("operator")
    in_string = operator["operator"] == b"=" and not operator["close"]
    setting = _SETTING.match(text.data, at) if in_string else None
    if setting is not None and _SETTINGS_BEFORE.search(text.data[max(0, start - _SETTINGS_BYTES) : start]):
        return setting.span(1)
    if sign in (b"", b"(", b".assign(", b",", b"=>"):
        token = _BARE_TOKEN.match(text.data, at) if sign == b"" and _is_option(text.data, start) else None
        return token.span(1) if token else None
    syntax = text.syntax
    if syntax.shell:
        word = (
            _BARE_WORD.match(text.data, at)
            if sign == b"=" and not operator["operator"][-1:].isspace()
            else None
        )
        return None if word is None or is_reference(word[1]) else word.span(1)
    if (syntax.bare_values or syntax.go) and _starts_line(text.data, start):
        line = _BARE_LINE.match(text.data, at)
        if line is None or is_reference(line[1]):
            return None
        value = re.split(rb"[ \t]+[#;]", line[1])[0].rstrip(b" \t,;\"'`")
        if (
            not value
            or (syntax.go and not re.search(rb"[$#?@~]", value))
            or re.search(rb"[\"'`<>]", value[:1])
        ):
            return None
        return at, at + len(value)
    token = _BARE_TOKEN.match(text.data, at)
    if token is None or text.is_python_code(at) or not any(48 <= byte <= 57 for byte in token[1]):
        return None
    return token.span(1)


def _starts_line(data: bytes, start: int) -> bool:
    """Return whether only a part of a name, an indent or a list's dash is between the line's start and `start`."""
    window = max(0, start - _MAX_INDENT_BYTES)
    newline = data.rfind(b"\n", window, start)
    return (newline >= 0 or window == 0) and _LINE_START.fullmatch(
        data, max(newline + 1, window), start
    ) is not None


def _compared(text: Text, start: int, end: int) -> Span | None:
    """Return the literal in "literal" == name, where `start` to `end` is an anchor in the name."""
    before = text.data[max(0, start - _NAME_BYTES) : start]
    if b"==" not in before and b"!=" not in before:
        return None
    window = max(0, start - 320)
    match = _COMPARED.search(text.data[window:start])
    if match is None or (match[2].isalpha() and match[2].islower()):
        return None
    suffix = re.match(rb"[\w-]{0,48}", text.data[end : end + _NAME_BYTES])
    name = _NAME.search(text.folded[max(0, start - _NAME_BYTES) : start])
    full = (name[0] if name else b"") + text.folded[start : end + (len(suffix[0]) if suffix else 0)]
    if not _is_secret(full, match[2]):
        return None
    return Span(window + match.start(2), window + match.end(2), "password")


def _is_secret(name: bytes, value: bytes) -> bool:
    last = re.split(rb"[_.-]", name)[-1]
    if _HASHED.search(name):
        return False
    if _CLOUDANT_NAME.search(name) and _CLOUDANT_KEY.fullmatch(value):
        return True
    if _HEX_KEY.fullmatch(value) and _HEX_KEY_NAME.search(name) and not value.isalpha():
        return True
    if name.endswith(b"private_key_id") and is_random_hex(value):
        return True
    strong = _STRONG.search(name)
    if strong is None:
        return _is_token(value)
    tail = name[strong.end() :].strip(b"_-.")
    if tail and (_ABOUT.fullmatch(tail) or _ABOUT.fullmatch(last)):
        return False
    return not is_dummy_password(value)


def _is_token(value: bytes) -> bool:
    """Return whether a value assigned to any key or token looks random."""
    if len(value) < _MIN_TOKEN_BYTES or b"EXAMPLE" in value or is_path(value):
        return False
    if not re.fullmatch(rb"[A-Za-z0-9+/_=-]+", value) or entropy_bits(value) < _MIN_TOKEN_BITS:
        return False
    return len(value) >= 32 and (is_random_hex(value) or is_random_base64(value, 4.2))
