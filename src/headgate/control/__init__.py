"""The running service and what watches it: HTTP API, metrics, logs."""

from __future__ import annotations

from headgate.control.service import Service

__all__ = ["Service"]
