"""Secrets and personal data."""
