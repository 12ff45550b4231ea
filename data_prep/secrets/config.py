"""Settings of redaction."""

from cluster.config import Config
from data_prep.secrets.kinds import KINDS, Kind


class SecretsConfig(Config):
    """Redaction of secrets and personal data: if `enabled`, those of `kinds` are replaced by placeholders."""

    enabled: bool = True
    kinds: tuple[Kind, ...] = KINDS
