"""Dependency order of a repository's files."""
