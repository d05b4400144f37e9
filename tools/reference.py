"""Writes the reference pages of `docs/reference/` from the code: `make reference`.

    python -m tools.reference

Keys come from the models of the configuration, commands from the command line, metrics from what is exported, and
paths from the OpenAPI description. Whatever a page lacks is to be said where the thing is declared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.reference_cli import cli_page
from tools.reference_configuration import configuration_page
from tools.reference_http import http_page
from tools.reference_metrics import metrics_page

__all__ = ["DIRECTORY", "PAGES", "main"]

DIRECTORY = Path(__file__).parents[1] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
    "http.md": http_page,
}


def main() -> None:
    """Write every page anew."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
