"""Random secrets of every documented form, in typical contexts."""

import base64
import json
import random
import string
from dataclasses import dataclass

_ALNUM = string.ascii_letters + string.digits
_URL_SAFE = _ALNUM + "-_"
_BASE64 = _ALNUM + "+/"
_LOWER_ALNUM = string.ascii_lowercase + string.digits
_UPPER_ALNUM = string.ascii_uppercase + string.digits
_HEX = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Vector:
    """A case: `secret` must be removed from `text`, the content of a file named `path`."""

    family: str
    path: str
    text: str
    secret: str


def _some(rng: random.Random, characters: str, length: int) -> str:
    return "".join(rng.choice(characters) for _ in range(length))


def _jwt(rng: random.Random) -> str:
    def part(content: dict[str, str]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    head = part({"alg": "HS256", "typ": "JWT"})
    return f"{head}.{part({'sub': _some(rng, _ALNUM, 12)})}.{_some(rng, _URL_SAFE, 43)}"


def token(rng: random.Random, family: str) -> str:
    """Return a token of a service, by its documented form."""
    some = rng.choice
    forms = {
        "anthropic": lambda: "sk-ant-api03-" + _some(rng, _URL_SAFE, 93) + "AA",
        "artifactory": lambda: "AKC" + _some(rng, _ALNUM, 60),
        "aws_id": lambda: some(["AKIA", "ASIA"]) + _some(rng, _UPPER_ALNUM, 16),
        "azure_storage": lambda: "AccountKey=" + _some(rng, _BASE64, 86) + "==",
        "digitalocean": lambda: "dop_v1_" + _some(rng, _HEX, 64),
        "discord": lambda: (
            some("MNO") + _some(rng, _ALNUM, 23) + "." + _some(rng, _ALNUM, 6) + "." + _some(rng, _ALNUM, 27)
        ),
        "gcp": lambda: "AIza" + _some(rng, _URL_SAFE, 35),
        "github": lambda: some(["ghp", "gho", "ghu", "ghs", "ghr"]) + "_" + _some(rng, _ALNUM, 36),
        "github_fine": lambda: "github_pat_" + _some(rng, _ALNUM, 22) + "_" + _some(rng, _ALNUM, 59),
        "gitlab": lambda: some(["glpat", "gldt", "glrt", "glsoat"]) + "-" + _some(rng, _ALNUM, 20),
        "huggingface": lambda: "hf_" + _some(rng, string.ascii_letters, 34),
        "jwt": lambda: _jwt(rng),
        "mailchimp": lambda: _some(rng, _HEX, 32) + f"-us{rng.randrange(1, 22)}",
        "npm": lambda: "npm_" + _some(rng, _ALNUM, 36),
        "openai": lambda: "sk-" + _some(rng, _ALNUM, 20) + "T3BlbkFJ" + _some(rng, _ALNUM, 20),
        "openai_project": lambda: "sk-proj-" + _some(rng, _ALNUM, 20) + "T3BlbkFJ" + _some(rng, _ALNUM, 20),
        "pypi": lambda: "pypi-AgEIcHlwaS5vcmc" + _some(rng, _URL_SAFE, 100),
        "sendgrid": lambda: "SG." + _some(rng, _ALNUM, 22) + "." + _some(rng, _URL_SAFE, 43),
        "slack": lambda: (
            some(["xoxb", "xoxp", "xoxa", "xoxr", "xoxs"])
            + f"-{rng.randrange(10**10, 10**12)}-{rng.randrange(10**10, 10**12)}-"
            + _some(rng, _LOWER_ALNUM, 24)
        ),
        "slack_webhook": lambda: (
            f"https://hooks.slack.com/services/T{_some(rng, _UPPER_ALNUM, 8)}/B{_some(rng, _UPPER_ALNUM, 8)}/"
            + _some(rng, _ALNUM, 24)
        ),
        "square": lambda: "sq0csp-" + _some(rng, _URL_SAFE, 43),
        "stripe": lambda: some(["sk_live_", "rk_live_"]) + _some(rng, _ALNUM, 24),
        "telegram": lambda: f"{rng.randrange(10**8, 10**10)}:" + _some(rng, _URL_SAFE, 35),
        "twilio": lambda: some(["AC", "SK"]) + _some(rng, _HEX, 32),
    }
    return forms[family]()


TOKEN_FAMILIES = (
    "anthropic artifactory aws_id azure_storage digitalocean discord gcp github github_fine gitlab huggingface jwt "
    "mailchimp npm openai openai_project pypi sendgrid slack slack_webhook square stripe telegram twilio"
).split()


def _secret_part(family: str, value: str) -> str:
    """Return the secret part of forms with a prefix that names the service."""
    if family == "telegram":
        return value.split(":")[1]
    if family == "slack_webhook":
        return value.split("/services/")[1]
    if family == "azure_storage":
        return value.split("=", 1)[1]
    return value


def token_vectors(rng: random.Random, family: str) -> list[Vector]:
    """Return the same form in Python, JSON, YAML, a shell script and a comment."""
    places = (
        ("a.py", "client = connect('{}')\n"),
        ("a.json", '{{"credential": "{}"}}\n'),
        ("a.yaml", "value: {}\n"),
        ("a.sh", "export VALUE={}\n"),
        ("a.c", "/* was {} until May */\n"),
    )
    vectors = []
    for path, place in places:
        value = token(rng, family)
        vectors.append(Vector(family, path, place.format(value), _secret_part(family, value)))
    return vectors


def _password(rng: random.Random) -> str:
    """Return letters, digits and signs, at least one of each."""
    characters = [rng.choice(string.ascii_letters), rng.choice(string.digits), rng.choice("!#%^&*+=?@-")]
    characters += [rng.choice(_ALNUM + "!#^*+?@-") for _ in range(rng.randrange(7, 20))]
    rng.shuffle(characters)
    return "".join(characters).strip("=#-@%&*")


_NAMES = (
    "password passwd pwd db_password DB_PASS api_key apikey apiKey API-KEY auth_key service_key account_key db_key "
    "database_key private_key client_key client_secret aws_secret_access_key secret_key my_password_super_secure "
    "key_pass database_pass contraseña contrasena"
).split()


def keyword_vectors(rng: random.Random) -> list[Vector]:
    """Return passwords assigned to names, in the syntax of several languages."""
    vectors = []
    for name in _NAMES:
        plain = name.replace("-", "_")
        for path, place in (
            ("a.py", '{plain} = "{value}"\n'),
            ("a.py", "connect({plain}='{value}')\n"),
            ("a.py", "settings['{name}'] = '{value}'\n"),
            ("a.py", 'if {plain} == "{value}":\n    pass\n'),
            ("a.js", 'const o = {{ "{name}": "{value}" }};\n'),
            ("a.js", 'if ("{value}" === {plain}) {{\n'),
            ("a.json", '{{"{name}": "{value}"}}\n'),
            ("a.go", '{plain} := "{value}"\n'),
            ("a.rb", ":{plain} => '{value}'\n"),
            ("a.c", 'char {plain}[32] = "{value}";\n'),
            ("a.m", '{plain} = @"{value}";\n'),
            ("a.cpp", 'std::string {plain}("{value}");\n'),
            ("a.yaml", "{name}: {value}\n"),
            ("a.ini", "[section]\n{name} = {value}\n"),
            ("nginx.conf", '{name} "{value}";\n'),
            ("a.properties", "{name}={value}\n"),
        ):
            value = _password(rng)
            vectors.append(Vector("keyword", path, place.format(plain=plain, name=name, value=value), value))
    return vectors


def entropy_vectors(rng: random.Random, num: int) -> list[Vector]:
    """Return random keys without a known form."""
    vectors = []
    for number in range(num):
        for family, value in (
            ("hex", _some(rng, _HEX, rng.choice([32, 40, 48, 64]))),
            ("base64", _some(rng, _BASE64, rng.randrange(40, 90))),
            ("url_safe", _some(rng, _URL_SAFE, rng.randrange(40, 90))),
        ):
            place = rng.choice(['value_{} = "{}"\n', "value_{} = '{}'\n", '{{"value_{}": "{}"}}\n'])
            vectors.append(Vector(f"entropy_{family}", "a.py", place.format(number, value), value))
    return vectors


def url_vectors(rng: random.Random, num: int) -> list[Vector]:
    """Return passwords in URLs and in Authorization headers."""
    vectors = []
    for number in range(num):
        value = _some(rng, _ALNUM, rng.randrange(8, 24))
        scheme = rng.choice(["https", "postgres", "mongodb+srv", "redis", "amqp"])
        host = rng.choice(["db.internal.net", "shop.acmecorp.io", "10.1.2.3"])
        vectors.append(Vector("url", "a.py", f"u = '{scheme}://user{number}:{value}@{host}/x'\n", value))
        basic = base64.b64encode(f"user{number}:{value}".encode()).decode()
        vectors.append(Vector("basic", "a.py", f"headers = {{'Authorization': 'Basic {basic}'}}\n", basic))
    return vectors


def special_vectors(rng: random.Random) -> list[Vector]:
    """Return forms of IBM, SoftLayer, Cloudant, AWS and npm that need a name beside the value."""
    lower_hex, iam = _some(rng, _HEX, 64), _some(rng, _URL_SAFE, 43) + "x"
    cos, key24, aws = _some(rng, _HEX, 48), _some(rng, string.ascii_lowercase, 24), _some(rng, _BASE64, 40)
    uuid = "-".join(_some(rng, _HEX, length) for length in (8, 4, 4, 4, 12))
    lines = [
        ("softlayer", f'--softlayer-api-key "{lower_hex}"', lower_hex),
        ("softlayer", f"--softlayer-api-key {lower_hex}", lower_hex),
        ("softlayer", f"SLAPIKEY : {lower_hex}", lower_hex),
        ("softlayer", f"http://api.softlayer.com/soap/v3.1/{lower_hex}", lower_hex),
        ("softlayer", f'"softlayer_key" := "{lower_hex}"', lower_hex),
        ("ibm_iam", f"ibm-cloud_api_key: {iam}", iam),
        ("ibm_iam", f'"iam-password": "{iam}"', iam),
        ("ibm_iam", f"IBMCLOUDIAMAPIKEY={iam}", iam),
        ("ibm_cos", f'"secret_access_key": "{cos}"', cos),
        ("ibm_cos", f"coshmac_secret_key = '{cos}'", cos),
        ("cloudant", f"cloudant_pw='{lower_hex}'", lower_hex),
        ("cloudant", f'cloudant_key = "{key24}"', key24),
        ("cloudant", f"https://account:{key24}@account.cloudant.com/_api", key24),
        ("aws_secret", f"aws_secret_access_key = '{aws}'", aws),
        ("npm", f"//registry.npmjs.org/:_authToken={uuid}", uuid),
        ("mailgun", f"auth=('api', 'key-{lower_hex[:32]}')", lower_hex[:32]),
    ]
    return [Vector(family, "a.txt", line + "\n", secret) for family, line, secret in lines]


def _pem(rng: random.Random, kind: str) -> tuple[str, str]:
    lines = [_some(rng, _BASE64, 64) for _ in range(12)] + [_some(rng, _BASE64, 22) + "=="]
    body = "\n".join(lines)
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n", lines[0]


def private_key_vectors(rng: random.Random) -> list[Vector]:
    """Return private keys in files and in literals."""
    vectors = []
    for kind in (
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "DSA PRIVATE KEY",
        "PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ):
        key, first = _pem(rng, kind)
        vectors.append(Vector("private_key", "id.pem", key, first))
        vectors.append(Vector("private_key", "a.py", f'KEY = """\\\n{key}"""\n', first))
        vectors.append(Vector("private_key", "a.json", json.dumps({"k": key}), first))
        pieces = "\n".join(f"    {json.dumps(line)}" for line in key.splitlines(keepends=True))
        vectors.append(Vector("private_key", "a.py", f"KEY = (\n{pieces}\n)\n", first))
    secret = _some(rng, _BASE64, 64)
    putty = (
        "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nComment: mine\nPublic-Lines: 1\n"
        f"{_some(rng, _BASE64, 64)}\nPrivate-Lines: 1\n{secret}\nPrivate-MAC: {_some(rng, _HEX, 40)}\n"
    )
    vectors.append(Vector("private_key", "mine.ppk", putty, secret))
    return vectors


def address_vectors(rng: random.Random, num: int) -> list[Vector]:
    """Return e-mail addresses and public IP addresses."""
    vectors = []
    for _ in range(num):
        local = _some(rng, string.ascii_lowercase, 6) + rng.choice([".", "_", "-", "+", ""])
        mail = f"{local}{_some(rng, string.ascii_lowercase, 5)}@{_some(rng, string.ascii_lowercase, 7)}"
        mail += rng.choice([".com", ".org", ".co.uk", ".de", ".io", ".edu"])
        vectors.append(Vector("email", "a.py", f"# Author: A. Person <{mail}>\n", mail))
        vectors.append(Vector("email", "a.json", json.dumps({"author": mail}), mail))
        v4 = f"{rng.randrange(26, 99)}.{rng.randrange(64, 256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        vectors.append(Vector("ipv4", "a.py", f"HOST = '{v4}'\n", v4))
        vectors.append(Vector("ipv4", "a.yaml", f"server: {v4}:8080\n", v4))
        v6 = "2a00:" + ":".join(f"{rng.randrange(1, 1 << 16):x}" for _ in range(7))
        vectors.append(Vector("ipv6", "a.py", f"HOST = '{v6}'\n", v6))
        vectors.append(
            Vector("ipv6", "a.py", f"URL = 'http://[2606:4700::{rng.randrange(1 << 16):x}]/'\n", "2606:4700")
        )
    return vectors


def all_vectors(seed: int, rounds: int = 20) -> list[Vector]:
    """Return every family, `rounds` times; the same for the same seed."""
    rng = random.Random(seed)
    vectors = []
    for _ in range(rounds):
        for family in TOKEN_FAMILIES:
            vectors += token_vectors(rng, family)
        vectors += special_vectors(rng)
    for _ in range(max(1, rounds // 5)):
        vectors += keyword_vectors(rng)
        vectors += private_key_vectors(rng)
    vectors += entropy_vectors(rng, rounds * 5)
    vectors += url_vectors(rng, rounds * 5)
    vectors += address_vectors(rng, rounds * 5)
    return vectors
