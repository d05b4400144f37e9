"""Servers that a bridge's environment names: PG_HOST, NATS_HOST and what goes with them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

__all__ = ["nats_url", "postgres_url"]


def postgres_url(environ: Mapping[str, str]) -> str:
    """The server that the environment names, or the embedded one."""
    if "PG_HOST" not in environ:
        return "embedded"
    user = _user(environ, "POSTGRES_BRIDGE_USER", "POSTGRES_BRIDGE_PASSWORD")
    port, database = environ.get("PG_PORT", "5432"), quote(environ.get("PG_DB", "postgres"), safe="")
    return f"postgres://{user}{environ['PG_HOST']}:{port}/{database}"


def nats_url(environ: Mapping[str, str]) -> str:
    """The server that the environment names, or the embedded one."""
    if "NATS_HOST" not in environ:
        return "embedded"
    user = _user(environ, "NATS_BRIDGE_USER", "NATS_BRIDGE_PASSWORD")
    return f"nats://{user}{environ['NATS_HOST']}:{environ.get('NATS_PORT', '4222')}"


def _user(environ: Mapping[str, str], user: str, password: str) -> str:
    if user not in environ:
        return ""
    secret = f":{quote(environ[password], safe='')}" if password in environ else ""
    return f"{quote(environ[user], safe='')}{secret}@"
