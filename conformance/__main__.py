"""`python -m conformance`: one judge, or all of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import conformance
from conformance import atproto, debezium, java, librdkafka

_WORK = Path(".headgate") / "conformance"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description=conformance.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "judge", nargs="?", choices=["atproto", "debezium", "java", "librdkafka"], help="all of them when left out"
    )
    parser.add_argument("--only", help="tests whose name contains this")
    parser.add_argument("--update", action="store_true", help="add what passes to the list")
    options = parser.parse_args()
    work = _WORK.resolve()
    failed = 0
    if options.judge in (None, "atproto"):
        failed |= atproto.run(work)
    if options.judge in (None, "debezium"):
        failed |= debezium.run(work)
    if options.judge in (None, "java"):
        failed |= java.run(work)
    if options.judge in (None, "librdkafka"):
        failed |= librdkafka.run(work, only=options.only, update=options.update)
    return failed


sys.exit(main())
