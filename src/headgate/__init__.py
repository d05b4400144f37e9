"""Headgate: PostgreSQL, webhooks, files and AT Protocol hosts as event streams, on Spark."""

from __future__ import annotations

import os

__all__ = ["__version__"]

__version__ = "0.1.0"

if "HEADGATE_WORKER_LOG" in os.environ:  # a process that Spark has started for headgate
    from headgate.runtime.worker_log import log_to_driver

    log_to_driver()
