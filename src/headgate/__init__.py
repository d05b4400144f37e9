"""Headgate: PostgreSQL, webhooks, files and AT Protocol hosts as event streams, on Spark."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
