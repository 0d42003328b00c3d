"""Errors a caller can act on. Each message holds the value that was wrong and the way out."""

from __future__ import annotations


class DetectorError(Exception):
    """The root of every error that gpuwarden raises on purpose."""


class ConfigError(DetectorError):
    """The configuration, or a call of the command line, is wrong."""


class SourceError(DetectorError):
    """A source cannot be opened or understood at all."""


class StoreError(DetectorError):
    """The database cannot be opened, is of another version, or refuses a write."""
