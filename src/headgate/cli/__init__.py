"""The `headgate` command. Each module is one command; the work is done in the other rooms."""

from __future__ import annotations

from headgate.cli.app import main

__all__ = ["main"]
