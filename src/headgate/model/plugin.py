"""The version of the contract between headgate and sources and destinations that others bring."""

from __future__ import annotations

__all__ = ["API_VERSION"]

# Raised when a plugin written for the contract before would misbehave under the one after.
API_VERSION = 1
