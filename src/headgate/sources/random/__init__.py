"""The `random` source: made-up orders, for demos, tests and benchmarks."""

from __future__ import annotations
