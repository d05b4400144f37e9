"""`headgate validate`: is the configuration right? Looks at the file only, connects to nothing."""

from __future__ import annotations

from dataclasses import asdict

import typer

from headgate.cli.output import ConfigOption, JsonOption, note, print_json
from headgate.config import InvalidConfigError, load

__all__ = ["validate"]


def validate(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check the configuration file, offline: every problem with its key, line and remedy.

    Example: headgate validate --config production.toml
    """
    try:
        loaded = load(config)
    except InvalidConfigError as error:
        if not as_json:
            raise
        print_json({"valid": False, "file": error.where, "problems": [asdict(p) for p in error.problems]})
        raise typer.Exit(error.exit_code) from None
    if as_json:
        print_json({"valid": True, "problems": [], "pipelines": sorted(loaded.pipelines)})
    else:
        note(
            f"valid: {len(loaded.sources)} sources, {len(loaded.destinations)} destinations, "
            f"{len(loaded.pipelines)} pipelines"
        )
