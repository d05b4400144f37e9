"""Servers that the broker is tested on.

A test runs on one server. With `@every_server` it runs on Debian's 15 and on the embedded 16 and 18: for what depends
on the version, such as plans, rights and the trees of conditions. `HEADGATE_TEST_BROKER` names one server for all tests
of the broker, these too.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stock import STOCK_VERSION, needs_stock

__all__ = ["CHOSEN", "VERSIONS", "another_like", "every_server"]

CHOSEN = os.environ.get("HEADGATE_TEST_BROKER")
VERSIONS = (CHOSEN,) if CHOSEN else (str(STOCK_VERSION), "16", "18")

# The fixture `template` takes the name of a server; all others stand on it.
every_server = pytest.mark.parametrize(
    "template",
    [pytest.param(name, marks=needs_stock if name == str(STOCK_VERSION) else ()) for name in VERSIONS],
    indirect=True,
    ids=lambda name: f"pg{Path(name).name}",
)


def another_like(version: int) -> str:
    """The name of a server to start beside one of this version."""
    return CHOSEN if CHOSEN and not CHOSEN.isdigit() else str(version)
