"""Settings of redaction, the kinds of secrets and personal data, and their placeholders."""

from typing import Literal, get_args

from cluster.config import Config

# The names are in ledgers and configs and must not change.
Kind = Literal[
    "email", "high_entropy", "ip_address", "password", "private_key", "service_token", "url_password"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
PLACEHOLDERS: dict[Kind, str] = {
    "email": "EMAIL",
    "high_entropy": "KEY",
    "ip_address": "IP_ADDRESS",
    "password": "PASSWORD",
    "private_key": "PRIVATE_KEY",
    "service_token": "KEY",
    "url_password": "PASSWORD",
}


def placeholder(kind: Kind, *, angle: bool) -> bytes:
    """Return a placeholder such as `<EMAIL>`, or `[EMAIL]` where `<` would open a tag or a redirection."""
    name = PLACEHOLDERS[kind]
    return (f"<{name}>" if angle else f"[{name}]").encode()


class SecretsConfig(Config):
    """Redaction of secrets and personal data: if `enabled`, those of `kinds` are replaced by placeholders."""

    enabled: bool = True
    kinds: tuple[Kind, ...] = KINDS
