"""Do `trigger` and `ordering` of a configuration suit its sources, transforms and destinations? Asked offline."""

from __future__ import annotations

from headgate.config import Config, Problem
from headgate.config.explain import dotted, line_of
from headgate.config.places import KeyPath
from headgate.model import ConfigError
from headgate.model.extras import missing_extra

__all__ = ["fit_problems"]


def fit_problems(config: Config, lines: dict[KeyPath, int]) -> list[Problem]:
    """Return what `check` and `run` would refuse. Imports clients of the destinations that must be looked at."""
    asking = [name for name, each in config.pipelines.items() if each.ordering != "total" or each.trigger == "realtime"]
    if not asking:
        return []
    try:
        from headgate.pipeline.assemble import misfits_offline

        errors = [error for name in asking for error in misfits_offline(config, name)]
    except ModuleNotFoundError as error:
        raise missing_extra(error, "run") or error from None
    return list(dict.fromkeys(_problem(error, lines) for error in errors))


def _problem(error: ConfigError, lines: dict[KeyPath, int]) -> Problem:
    path = tuple((error.where or "").split("."))
    return Problem(dotted(path), line_of(path, lines), error.message, error.remedy or "")
