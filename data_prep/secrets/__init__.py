"""Detection and redaction of secrets and personal data."""
