"""`headgate validate`: is the configuration right? Looks at the file only, connects to nothing."""

from __future__ import annotations

from dataclasses import asdict

import typer

from headgate.cli.output import ConfigOption, JsonOption, note, print_json
from headgate.config import InvalidConfigError, Problem
from headgate.config.explain import invalid
from headgate.config.loading import Examined, examine
from headgate.model import DependencyError

__all__ = ["validate"]


def validate(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check the configuration file, offline: every problem with its key, line and remedy.

    SQL of transforms, and schemas, are parsed by Spark's own parser, which takes some seconds if there are any.

    Example: headgate validate --config production.toml
    """
    try:
        examined = examine(config)
        if problems := _problems(examined, as_json):
            raise invalid(examined.file, problems)
    except InvalidConfigError as error:
        if not as_json:
            raise
        print_json({"valid": False, "file": error.where, "problems": [asdict(p) for p in error.problems]})
        raise typer.Exit(error.exit_code) from None
    _show_valid(examined, as_json)


def _show_valid(examined: Examined, as_json: bool) -> None:
    config = examined.config
    if as_json:
        print_json({"valid": True, "problems": [], "pipelines": sorted(config.pipelines)})
    else:
        note(
            f"valid: {len(config.sources)} sources, {len(config.destinations)} destinations, "
            f"{len(config.pipelines)} pipelines"
        )


def _problems(examined: Examined, as_json: bool) -> list[Problem]:
    """Of the file itself, then what the parts that would run it have to say."""
    from headgate.pipeline.fit_check import fit_problems
    from headgate.pipeline.sql_check import sql_problems

    found = list(examined.problems)
    for subject, look in (("the SQL", sql_problems), ("`trigger` and `ordering`", fit_problems)):
        try:
            found += look(examined.config, examined.lines)
        except DependencyError as error:
            if not as_json:
                note(f"not looked at, {subject}: {error.message}")
    return found
