"""What is redacted."""

from cluster.config import Config
from data_prep.secrets.kinds import KINDS, Kind


class SecretsConfig(Config):
    """Secrets and personal data in the texts: `kinds` are replaced by placeholders unless not `enabled`."""

    enabled: bool = True
    kinds: tuple[Kind, ...] = KINDS
