"""Runs the tests that failed once more, each alone: `python -m tests.again STATUS`, which `make test` does.

Beside thousands of others, on a busy machine, a test may fail for want of time. One that passes alone does not fail the
run, but is named at its end: it has a fault, or the code has, and somebody should look. One that fails again fails it,
and more than a few are never tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
TESTS_FAILED = 1  # pytest's exit status; others are an interruption, or a wrong call
MOST = 5


def main(status: int) -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if status != TESTS_FAILED or not 0 < len(failed) <= MOST:
        return status
    _say(f"once more, each alone: {', '.join(failed)}")
    if any(_run(test) for test in failed):
        return TESTS_FAILED
    _say("\n  ".join(["UNSTABLE: these failed beside others and passed alone. Please look why:", *failed]))
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


def _run(test: str) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
