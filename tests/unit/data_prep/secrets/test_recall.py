"""Secrets that must be found: every documented form, and the forms in detect-secrets' own tests."""

import pytest

from data_prep.secrets.config import KINDS
from data_prep.secrets.redact import redact
from tests.unit.data_prep.secrets.vectors import Vector, all_vectors

_VECTORS = all_vectors(seed=7, rounds=4)
_FAMILIES = sorted({vector.family for vector in _VECTORS})
# Of random passwords a few look like a template or a dummy.
_MIN_KEYWORD_RECALL = 0.98


def _missed(vectors: list[Vector]) -> list[Vector]:
    return [
        vector
        for vector in vectors
        if vector.secret.encode() in redact(vector.text.encode(), vector.path).data
    ]


@pytest.mark.parametrize("family", [family for family in _FAMILIES if family != "keyword"])
def test_every_generated_secret_of_the_family_is_replaced(family: str) -> None:
    assert _missed([vector for vector in _VECTORS if vector.family == family]) == []


def test_nearly_all_assigned_passwords_are_replaced() -> None:
    vectors = [vector for vector in _VECTORS if vector.family == "keyword"]
    assert len(_missed(vectors)) <= (1 - _MIN_KEYWORD_RECALL) * len(vectors)


def test_generated_secrets_cover_every_kind() -> None:
    found = {kind for v in _VECTORS for kind, _ in redact(v.text.encode(), v.path).counts}
    assert found == set(KINDS)


_AWKWARD = "p8{{h}o)k${e]q3(zr[w>-_$#end}}"


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("a.conf", "apikey = {}"),
        ("a.conf", "db_pass: {},"),
        ("a.conf", "passwd: {}`"),
        ("a.conf", 'secrete "{}";'),
        ("a.conf", 'if ("{}" == my_super_password) {{'),
        ("a.conf", "['secret'] = {}"),
        ("a.go", "db_pass := {}"),
        ("a.go", "aws_secret_access_key := `{}`"),
        ("a.go", 'if ("{}" !== my_password_sec) {{'),
        ("a.m", 'secrete[] = "{}";'),
        ("a.cs", 'password = @"{}";'),
        ("a.cpp", 'secrete.assign("{}",17);'),
        ("a.js", "api_key: `{}`"),
        ("a.js", 'if (db_pass !== "{}") {{'),
        ("a.php", 'password => "{}"'),
        ("a.php", "define('DB_PASSWORD', '{}');"),
        ("a.py", "password: str = '{}'"),
        ("a.py", "fooprivate_keyfoo'{}';"),
        ("a.tf", "aws_secret_access_key: '{}'"),
    ],
)
def test_values_full_of_brackets_and_signs_are_replaced(path: str, template: str) -> None:
    assert _AWKWARD.encode() not in redact(template.format(_AWKWARD).encode(), path).data


def test_a_passphrase_of_words_is_replaced() -> None:
    assert redact(b'password = "umbrella violin glacier"').data == b'password = "<PASSWORD>"'


def test_passwords_in_xml_elements_and_attributes_are_replaced() -> None:
    text = b'<user password="k3Rt!pLm"><dbPassword>hT6$wqZ1</dbPassword></user>'
    assert redact(text, "a.xml").data == (
        b'<user password="[PASSWORD]"><dbPassword>[PASSWORD]</dbPassword></user>'
    )


def test_a_service_account_loses_its_key_and_its_key_id() -> None:
    text = (
        b'{"private_key_id": "0a4f1e5b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f", "private_key": '
        b'"-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\\n-----END PRIVATE KEY-----\\n"}'
    )
    assert redact(text, "a.json").data == (
        b'{"private_key_id": "<PASSWORD>", "private_key": '
        b'"-----BEGIN PRIVATE KEY-----\\n<PRIVATE_KEY>\\n-----END PRIVATE KEY-----\\n"}'
    )


def test_counts_are_by_kind_and_sorted() -> None:
    text = b"# jane@physics.edu, joe@physics.edu\nHOST = '93.184.216.34'\n"
    assert redact(text).counts == (("email", 2), ("ip_address", 1))


def test_only_the_configured_kinds_are_replaced() -> None:
    token = b"ghp_" + b"aB3dE6gH9kL2" * 3
    text = b'password = "' + token + b'"  # jane@physics.edu'
    assert redact(text, kinds=("service_token",)).data == b'password = "<KEY>"  # jane@physics.edu'
    assert redact(text, kinds=("email",)).data == text.replace(b"jane@physics.edu", b"<EMAIL>")
    assert redact(text, kinds=()).data == text


def test_addresses_in_literals_and_comments_of_python_are_replaced() -> None:
    text = (
        b'"""By jane@physics.edu\nand joe@physics.edu."""\nA = \'ann@physics.edu\'  # not eve@physics.edu\n'
    )
    assert redact(text, "a.py").data == (b'"""By <EMAIL>\nand <EMAIL>."""\nA = \'<EMAIL>\'  # not <EMAIL>\n')


def test_the_password_of_a_connection_string_is_replaced() -> None:
    text = b'var c = "Server=db.net;Database=shop;User Id=sa;Password=hT6wqZ1;Encrypt=true";'
    assert redact(text, "a.cs").data == text.replace(b"hT6wqZ1", b"<PASSWORD>")
