"""`headgate.toml`: models, loading, and errors that name the key, the line and the fix."""

from __future__ import annotations

from headgate.config.explain import InvalidConfigError, Problem
from headgate.config.load import DEFAULT_FILE, load, parse
from headgate.config.models import Config

__all__ = ["DEFAULT_FILE", "Config", "InvalidConfigError", "Problem", "load", "parse"]
