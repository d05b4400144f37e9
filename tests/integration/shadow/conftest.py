"""A log of PostgreSQL to mirror from."""

from __future__ import annotations

from tests.integration.commitlog.conftest import connection, log_url, stock_log_url, stock_url, topic

__all__ = ["connection", "log_url", "stock_log_url", "stock_url", "topic"]
