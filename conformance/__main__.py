"""`python -m conformance`: one judge, or all of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import conformance
from conformance import atproto, connect, debezium, franz, java, librdkafka, rights, spark_connector, streams

_WORK = Path(".headgate") / "conformance"
_JUDGES = {
    "atproto": atproto.run,
    "connect": connect.run,
    "debezium": debezium.run,
    "franz": franz.run,
    "java": java.run,
    "rights": rights.run,
    "spark": spark_connector.run,
    "streams": streams.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description=conformance.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "judge",
        nargs="?",
        choices=[*_JUDGES, "librdkafka"],
        help="all of them when left out",
    )
    parser.add_argument("--only", help="tests whose name contains this")
    parser.add_argument("--update", action="store_true", help="add what passes to the list")
    options = parser.parse_args()
    work = _WORK.resolve()
    failed = 0
    for name, judge in _JUDGES.items():
        if options.judge in (None, name):
            failed |= judge(work)
    if options.judge in (None, "librdkafka"):
        failed |= librdkafka.run(work, only=options.only, update=options.update)
    return failed


sys.exit(main())
