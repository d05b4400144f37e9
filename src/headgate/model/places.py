"""Where a bridge keeps what consumers need beside its stream of changes.

Bridges on one NATS are told apart by that stream. The default one, `CDC`, goes with the stream `INIT`, the subjects
`init.>` and the buckets `schemas` and `dictionaries`; any other has its own, named after it.
"""

from __future__ import annotations

import re

__all__ = [
    "DEFAULT_DICTIONARIES",
    "DEFAULT_PREFIX",
    "dictionary_bucket",
    "init_prefix",
    "init_stream",
    "schema_bucket",
]

_DEFAULT = "CDC"
_INIT = "INIT"
DEFAULT_PREFIX = "init"
DEFAULT_DICTIONARIES = "dictionaries"


def init_stream(cdc_stream: str) -> str:
    """The stream of snapshots."""
    return _INIT if cdc_stream == _DEFAULT else f"{_INIT}_{cdc_stream}"


def init_prefix(stream: str) -> str:
    """What subjects of snapshots begin with in that stream: no two streams may take the same."""
    return f"init_{stream.removeprefix(f'{_INIT}_')}" if stream.startswith(f"{_INIT}_") else DEFAULT_PREFIX


def schema_bucket(cdc_stream: str) -> str:
    """The bucket of schemas, whose name allows fewer characters."""
    return _bucket("schemas", cdc_stream)


def dictionary_bucket(cdc_stream: str) -> str:
    """The bucket of zstd's dictionaries."""
    return _bucket(DEFAULT_DICTIONARIES, cdc_stream)


def _bucket(name: str, cdc_stream: str) -> str:
    return name if cdc_stream == _DEFAULT else f"{name}_{re.sub(r'[^-_A-Za-z0-9]', '_', cdc_stream)}"
