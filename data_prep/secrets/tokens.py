"""Finders of services' tokens: the beginning of a token is searched for, then a pattern decides."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from data_prep.secrets.dummies import is_dummy_token
from data_prep.secrets.text import Span, Text


@dataclass(frozen=True, slots=True)
class TokenForm:
    """A form: `anchors` are searched for, in lower case with every digit 0; `pattern` must match there.

    Group 1, if the pattern has one, is the secret part. `any_fill` also accepts tokens filled with one character,
    which occur in services' documentation and are counted by detect-secrets.
    """

    anchors: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    any_fill: bool = False


def _form(anchors: str, pattern: str, *, any_fill: bool = False) -> TokenForm:
    return TokenForm(tuple(anchors.encode().split()), re.compile(pattern.encode()), any_fill)


# Not in the middle of a word, so that each beginning in a long run of them costs one match attempt.
_B = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"
TOKEN_FORMS: tuple[TokenForm, ...] = (
    # Amazon
    _form(
        "akia asia abia acca a0t",
        _B + r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}" + _END,
        any_fill=True,
    ),
    _form("amzn.mws.", _B + r"amzn\.mws\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    # GitHub, GitLab
    _form("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9_]{36,255}"),
    _form("github_pat_", r"github_pat_[A-Za-z0-9_]{60,255}"),
    _form(
        "glpat- gldt- glft- glsoat- glrt- gloas- glimt- glptt- glcbt- glagent- glffct-",
        r"(?:glpat|gldt|glft|glsoat|glrt|gloas|glimt|glptt|glcbt|glagent|glffct)-[A-Za-z0-9_.-]{20,1024}(?!\w)",
    ),
    _form("gr0000000", r"GR1348941[A-Za-z0-9_-]{20,50}(?!\w)"),
    # Messengers
    _form(
        "xoxa- xoxb- xoxp- xoxo- xoxs- xoxr- xoxe- xoxe.",
        r"(?i:xox[abposre][-.](?:xox[bp]-)?(?:\d{1,16}-){1,4}[a-z0-9]{6,160})",
    ),
    _form("xapp-", r"xapp-\d-[A-Z0-9]{6,16}-\d{6,16}-[a-f0-9]{32,80}"),
    _form(
        "hooks.slack.com/",
        r"(?i:hooks\.slack\.com/(?:services|workflows|triggers)/"
        r"(T[a-z0-9_]{1,24}/[A-Z][a-z0-9_]{1,24}/[a-z0-9_]{1,64}))",
        any_fill=True,
    ),
    _form("/api/webhooks/", r"/api/webhooks/(\d{16,20}/[A-Za-z0-9_-]{60,80})"),
    _form("00000000:", r"\d{8}:([0-9A-Za-z_-]{35})(?![0-9A-Za-z_-])"),
    # Payments
    _form("sk_live_ rk_live_ sk_test_ rk_test_", _B + r"[rs]k_(?:live|test)_[0-9a-zA-Z]{16,247}"),
    _form("whsec_", _B + r"whsec_[A-Za-z0-9+/]{24,64}={0,2}"),
    _form("sq0csp- sq0atp- sq0idp-", r"sq0[a-z]{3}-[0-9A-Za-z\\_-]{22,43}", any_fill=True),
    _form("eaaa", _B + r"EAAA[A-Za-z0-9_-]{60}" + _END),
    _form("shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    # Mail and telephone
    _form("sg.", _B + r"SG\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9_-]{43}"),
    _form("key-", _B + r"key-[0-9a-f]{32}" + _END),
    _form("xkeysib-", r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    # Package indices, registries, continuous integration
    _form("npm_", _B + r"npm_[A-Za-z0-9]{36}" + _END),
    _form(
        ":_auth", r":_auth(?:[tT]oken)?[ \t]{0,8}=[ \t]{0,8}[\"']?([A-Za-z0-9+/=_-]{6,256})", any_fill=True
    ),
    _form("pypi-ag", r"pypi-Ag(?:EIcHlwaS5vcmc|ENdGVzdC5weXBpLm9yZw)[A-Za-z0-9_-]{70,512}"),
    _form("rubygems_", r"rubygems_[a-f0-9]{48}"),
    _form("dckr_pat_", r"dckr_pat_[A-Za-z0-9_-]{27}"),
    _form("akc", r"(?<![^\s=:\"'])AKC[a-zA-Z0-9]{10,128}(?![^\s\"'])", any_fill=True),
    _form("sntrys_", r"sntrys_[A-Za-z0-9+/=_]{60,512}"),
    _form("glsa_ glc_", _B + r"gl(?:sa|c)_[A-Za-z0-9+/=]{32,400}(?:_[a-f0-9]{8})?"),
    # Clouds
    _form(
        "accountkey= sharedaccesskey=", r"(?i:(?:account|sharedaccess)key=)[\"']?([a-zA-Z0-9+/]{40,86}={1,2})"
    ),
    _form("sig=", r"sig=([A-Za-z0-9%]{43,63}%3[dD])"),
    _form("aiza", _B + r"AIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])"),
    _form("ya00.", _B + r"ya29\.[0-9A-Za-z_-]{20,1024}"),
    _form("gocspx-", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    _form("dop_v0_ doo_v0_ dor_v0_", r"do[opr]_v1_[a-f0-9]{64}"),
    _form("dapi", _B + r"dapi[a-f0-9]{32}(?:-\d)?" + _END),
    _form("hvs. hvb.", _B + r"hv[sb]\.[A-Za-z0-9_-]{24,300}"),
    _form("softlayer.com/soap/", r"(?i:softlayer\.com/soap/v3(?:\.1)?/([a-z0-9]{64}))", any_fill=True),
    _form("atatt0", _B + r"ATATT3[A-Za-z0-9_=-]{60,400}"),
    _form("nrak- nraa-", _B + r"NR(?:AK|AA)-[A-Za-z0-9]{27,42}"),
    _form("pmak-", _B + r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    _form("lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    _form("figd_", r"figd_[A-Za-z0-9_-]{40,64}"),
    _form("age-secret-key-", r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    # Models
    _form(
        "sk-",
        _B
        + r"sk-(?:[A-Za-z0-9_-]{0,200}[A-Za-z0-9_-]{20}T3BlbkFJ[A-Za-z0-9_-]{20,200}|ant-[A-Za-z0-9_-]{80,120}|"
        r"(?:proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{32,200}|[A-Za-z0-9]{32,64}" + _END + r")",
    ),
    _form("hf_ api_org_", _B + r"(?:hf_|api_org_)[A-Za-z]{34}" + _END),
    _form("r0_", _B + r"r8_[A-Za-z0-9]{37}" + _END),
    _form("gsk_ pplx- xai-", _B + r"(?:gsk_|pplx-|xai-)[A-Za-z0-9]{48,80}" + _END),
)
# Three parts of base64, of which the third, the signature, may be missing; not in the middle of a word.
_JWT = re.compile(rb"(?<![A-Za-z0-9_-])eyJ[\w=-]{8,4096}+\.[\w=-]{4,8192}+(?:\.[\w.+/=-]{0,8192}+)?")
# Tokens without a fixed beginning: their shape in a transformed copy of the text, and the pattern.
_TWILIO_SHAPE, _TWILIO = (
    b"AA" + b"a" * 32,
    re.compile(rb"(?<![A-Za-z0-9])(?:AC|SK)[a-z0-9]{32}(?![A-Za-z0-9])"),
)
_MAILCHIMP_SHAPE, _MAILCHIMP = b"a" * 32 + b"-aaa", re.compile(rb"[0-9a-z]{32}-us[0-9]{1,2}(?![0-9])")
_DISCORD_SHAPE = b".aaaaaa." + b"a" * 27
_DISCORD = re.compile(
    rb"(?<![\w-])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}(?![\w-])"
)
_MAX_DISCORD_ID_BYTES = 28
_ARTIFACTORY = re.compile(rb"AP[\dA-F][a-zA-Z0-9]{8,128}(?=[\s\"']|\Z)")
_ARTIFACTORY_CONTEXT = re.compile(rb"artif|jfrog", re.IGNORECASE)
_CONTEXT_BYTES = 48


def token_finder(form: TokenForm) -> Callable[[Text, int, int], Span | None]:
    """Return a finder of this form's tokens at an anchor's position."""

    def find(text: Text, at: int, _end: int) -> Span | None:
        match = form.pattern.match(text.data, at)
        if match is None:
            return None
        group = 1 if form.pattern.groups else 0
        token = match[group]
        if (not form.any_fill or b"EXAMPLE" in token) and is_dummy_token(token):
            return None
        return Span(match.start(group), match.end(group), "service_token")

    return find


def jwt_at(text: Text, at: int, _end: int) -> Span | None:
    """Return a JSON web token, whose header and claims must be JSON."""
    match = _JWT.match(text.data, at)
    if match is None:
        return None
    parts = match[0].rstrip(b".").split(b".")
    if not all(_is_json(part) for part in parts[:2]):
        return None
    return Span(match.start(), match.end(), "service_token")


def shaped_token_spans(text: Text) -> Iterator[Span]:
    """Yield tokens of Twilio, Mailchimp, Discord and Artifactory, which have a shape but no fixed beginning."""
    yield from _find_shape(text, text.cases, _TWILIO_SHAPE, _TWILIO, 0)
    yield from _find_shape(text, text.cases, _MAILCHIMP_SHAPE, _MAILCHIMP, 0)
    yield from _find_shape(text, text.runs, _DISCORD_SHAPE, _DISCORD, _MAX_DISCORD_ID_BYTES)
    for match in _ARTIFACTORY.finditer(text.data):
        before = text.data[max(0, match.start() - _CONTEXT_BYTES) : match.start()]
        if before[-1:] not in (b"", b" ", b"=", b":", b'"', b"'", b"\n", b"\t", b"\r"):
            continue
        if _ARTIFACTORY_CONTEXT.search(before) or any(48 <= byte <= 57 for byte in match[0]):
            yield Span(match.start(), match.end(), "service_token")


def _find_shape(
    text: Text, form: bytes, shape: bytes, pattern: re.Pattern[bytes], back: int
) -> Iterator[Span]:
    at = form.find(shape)
    while at >= 0:
        match = (
            pattern.search(text.data, max(0, at - back), at + len(shape) + 16)
            if back
            else (pattern.match(text.data, at))
        )
        if match is not None:
            yield Span(match.start(), match.end(), "service_token")
        at = form.find(shape, max(at + 1, match.end() if match else 0))


def _is_json(part: bytes) -> bool:
    stripped = part.rstrip(b"=")
    try:
        json.loads(base64.urlsafe_b64decode(stripped + b"=" * (-len(stripped) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return True
