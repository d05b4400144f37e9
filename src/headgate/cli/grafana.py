"""`headgate grafana`: a dashboard and alert rules for those who have Grafana and Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import note
from headgate.control.grafana import alert_rules, dashboard
from headgate.model import UsageError

__all__ = ["grafana"]

grafana = typer.Typer(help="A dashboard for Grafana and alert rules for Prometheus.", no_args_is_help=True)


@grafana.callback()
def _group() -> None:
    """Keeps `export` a command of its own, although there is no other yet."""


@grafana.command()
def export(
    directory: Annotated[Path, typer.Option("--directory", "-d", help="Where to write the two files.")] = Path(),
) -> None:
    """Write headgate-dashboard.json, which Grafana imports, and headgate-alerts.yml, a rule file of Prometheus.

    Files that are there already are written anew: both are made from the metrics that this version exports.

    Example: headgate grafana export --directory /etc/prometheus/rules
    """
    files = {
        "headgate-dashboard.json": json.dumps(dashboard(), indent=2) + "\n",
        "headgate-alerts.yml": alert_rules(),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
            note(f"wrote {directory / name}")
    except OSError as error:
        raise UsageError(f"cannot write: {error}", remedy="name another place with --directory") from None
