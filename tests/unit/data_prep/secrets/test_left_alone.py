"""Text that must not be redacted: examples, dummies, checksums, code."""

import pytest

from data_prep.secrets.redact import redact


@pytest.mark.parametrize(
    "text",
    [
        "joe@example.com joe@example.org joe@mail.test joe@localhost user@host noreply@github.com",
        "git@github.com:a/b.git https://joe@bitbucket.org/a/b",
        "y = x@w.to(device)",
        "z = A@B.T",
        "loss = q@k.mT + a@b.real",
        "c = a@b.com + x@(y@model.io)",
        "def f(x):\n    return x@self.info",
        "@app.route('/')\n@pytest.mark.gpu\ndef f(): ...",
        "icon@2x.png foo@1.2.3 @types/node",
    ],
)
def test_text_without_an_address_stays(text: str) -> None:
    assert redact(text.encode(), "a.py").counts == ()


@pytest.mark.parametrize(
    "address",
    "127.0.0.1 10.0.0.1 172.16.0.1 172.31.255.1 192.168.0.1 169.254.169.254 192.0.2.7 198.51.100.4 203.0.113.9 "
    "224.0.0.251 239.255.255.250 255.255.255.0 0.0.0.0 100.64.0.1 198.18.0.1 256.256.256.256 1.2.3 1.2.3.4.5.6 "
    "1.2.3.04 ::1 fe80::1 2001:db8::1 ff02::fb fd00::1 18.68.0.0/16".split(),
)
def test_an_example_address_stays(address: str) -> None:
    assert redact(f"HOST = '{address}'\n".encode()).counts == ()


@pytest.mark.parametrize(
    "text",
    [
        "version = '1.2.3.4'",
        "Version 133.10.20.30 was released",
        'AssemblyVersion("4.0.30.1")',
        "v92.108.3.1",
        "package-92.108.3.1.tar",
        "92.108.3.1-beta",
        "OID 1.3.6.1",
        "see 8.2.4.45",
        "std::vector<int> x = a::b::c; 12:30:45 {1000: 2000}",
    ],
)
def test_versions_and_times_are_not_ip_addresses(text: str) -> None:
    assert redact(text.encode()).counts == ()


@pytest.mark.parametrize(
    "value",
    [
        "",
        "your_password",
        "your_api_key",
        "changeme",
        "change-me",
        "xxxxxxxx",
        "********",
        "<password>",
        "${DB_PASSWORD}",
        "$PASSWORD",
        "{{ password }}",
        "{password}",
        "%(password)s",
        "%s",
        "password",
        "secret",
        "example-key",
        "somefakekey",
        "12345678",
        "aaaaaaaa",
        "abcdefgh",
        "string",
        "None",
        "user_password",
        "api.key.path",
        "X-Api-Key",
        "SECRET_KEY",
        "/run/secrets/db",
        "Enter your password:",
        "the password is wrong",
        "123e4567-e89b-12d3-a456-426614174000",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "<PASSWORD>",
        "[PASSWORD]",
        "<KEY>",
    ],
)
def test_a_dummy_password_stays(value: str) -> None:
    for text in (f'password = "{value}"', f"api_key: '{value}'", f'{{"secret": "{value}"}}'):
        assert redact(text.encode(), "a.py").data == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "password = os.environ['PASSWORD']",
        "password = getpass.getpass()",
        "login(username=username, password=password)",
        "def open(self, password=''):",
        "my_password = request.json_body['hey']",
        "apiKey: this.apiKey,",
        "token = tokens[i]",
        "for key, value in items: pass",
        'some_key = "real_value"',
        'key = "name"',
        "password_field = 'pw1x-input-7'",
        "password_hash = 'a8Kd03lfP2mx'",
        "$password = $input;",
        'new["refreshToken"] = response["refreshToken"]',
        'new["secret_key"]=state["secret_key"]',
        "const password = `${make(`k3Rt`)}`;",
        'password = "#{make("k3Rt")}"',
        "password = rf'{user}-k3Rt'",
        'public_key = "a8Kd03lfP2mxQq7Z"',
    ],
)
def test_code_about_secrets_stays(text: str) -> None:
    assert redact(text.encode(), "a.py").data == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "password: ${link}",
        "password: *anchor",
        "password: !vault |",
        "secretName: my-certificate",
        "password: null",
        "key: value",
    ],
)
def test_references_in_configuration_stay(text: str) -> None:
    assert redact(text.encode(), "a.yaml").data == text.encode()


_SHA1 = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "text",
    [
        f'commit = "{_SHA1}"',
        f'rev: "{_SHA1}"',
        f'sha256 = "{_SHA256}"',
        f'"sha256-{_SHA256}"',
        f'"foo-1.0.tar.gz": "{_SHA256}"',
        f"--hash=sha256:{_SHA256}",
        f'["{_SHA1}", "{_SHA256}"]',
        f"check('{_SHA1}')",
        'md5 = "d41d8cd98f00b204e9800998ecf8427e"',
        '"integrity": "sha512-bQ7zVd3Yk0pLr/8mWn2Xc+TfJ4sHg9uE1oAyKq6RiPwZ5tBvDlCjNxMhUeGfSa1I2r3O4w5K6b7Y8z9T0v1Q=="',
        'id = "123e4567-e89b-12d3-a456-426614174000"',
        'ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"',
        'name = "AmazonElasticContainerServiceTaskExecutionRolePolicy2"',
        'path = "/usr/share/Some-Package/Resources/English/Localizable2"',
        '"----------------------------------------"',
        "'2602129298404963083833853479113577253105939995688e2'",
    ],
)
def test_checksums_alphabets_and_names_are_not_keys(text: str) -> None:
    assert redact(text.encode(), "a.py").data == text.encode()


def test_lock_files_keep_their_checksums() -> None:
    text = f'{{"resolved": "{_SHA1}", "value": "{_SHA256}"}}'.encode()
    assert redact(text, "app/package-lock.json").data == text


def test_public_keys_and_certificates_stay() -> None:
    body = "\n".join(["MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ"] * 4)
    text = (
        f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
        f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n"
    )
    assert redact(text.encode(), "a.pem").data == text.encode()


def test_code_that_names_a_key_header_stays() -> None:
    text = b"if b'-----BEGIN RSA PRIVATE KEY-----' in data:\n    raise ValueError('private')\n"
    assert redact(text, "a.py").data == text


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:5000/<%= @variable %>",
        "https://user:pass@host/",
        "https://user:secret@example.com/",
        "postgres://user:${PASSWORD}@db.net/x",
        "https://{user}:{password}@db.net/x",
        "https://user:<password>@db.net/x",
        "http://a.net:80/@x",
    ],
)
def test_urls_without_a_real_password_stay(url: str) -> None:
    assert redact(f"URL = '{url}'".encode(), "a.py").counts == ()


def test_bytes_outside_the_secrets_are_kept_as_they_are() -> None:
    text = "naïve = '\u00fc' # \u65e5\u672c jane@physics.edu \U0001f600\r\n\x00".encode()
    assert redact(text).data == text.replace(b"jane@physics.edu", b"<EMAIL>")
