"""`python -m bench`: run one measurement, or list them."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import signal
import sys
import tempfile
from pathlib import Path

import bench
from bench.harness import Bench, print_table

_NOT_BENCHES = {
    *("__main__", "apache_kafka", "broker_load", "cdc_load", "cdc_parts", "follow", "gateway_load", "harness", "trees"),
}


def main() -> None:
    names = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in _NOT_BENCHES)
    parser = argparse.ArgumentParser(prog="python -m bench", description=bench.__doc__)
    parser.add_argument("name", nargs="?", choices=names, help="what to measure; all of them when left out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="end within 45 seconds, with rougher figures")
    parser.add_argument("--rows", type=int, default=500_000, help="how many rows to move (default: %(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped, too
    for name in [options.name] if options.name else names:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
            result = Bench(name, Path(directory), quick=options.quick, rows=options.rows)
            importlib.import_module(f"bench.{name}").measure(result)
        if options.json:
            sys.stdout.write(json.dumps(result.as_dict(), indent=2) + "\n")
        else:
            print_table(result)


main()
