"""Live checks of everything headgate needs, each with the command or SQL that mends it."""

from __future__ import annotations

from headgate.control.checks.run import run_checks
from headgate.control.checks.verdict import Check, Outcome

__all__ = ["Check", "Outcome", "run_checks"]
