"""The `headgate` command. Each module is one command; the work is done in the other rooms."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    from headgate.cli.app import main as run

    run()
