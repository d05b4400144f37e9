"""Reads `headgate.toml`: parse, interpolate, override from the environment, validate, and explain what is wrong.

Precedence: `HEADGATE__SECTION__KEY` in the environment, then the file, then the defaults.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from headgate.config.explain import Problem, dotted, explain, invalid, line_of, syntax_problem
from headgate.config.models import Config
from headgate.config.places import KeyPath, key_lines
from headgate.config.semantics import meaning_problems
from headgate.model import ConfigError

__all__ = ["DEFAULT_FILE", "Examined", "examine", "load", "parse"]

DEFAULT_FILE = Path("headgate.toml")

_OVERRIDE_PREFIX = "HEADGATE__"
_NAMED = ("sources", "destinations", "pipelines")  # tables of tables
_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)\}")


class Examined(NamedTuple):
    """A file, with all that is wrong with it, and of its configuration what is right."""

    file: Path
    config: Config
    problems: list[Problem]
    lines: dict[KeyPath, int]


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration of `path` (or `$HEADGATE_CONFIG`, or `./headgate.toml`)."""
    return _accepted(examine(path, environ))


def examine(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Examined:
    """Load the file and collect its problems instead of raising them; a file that cannot be read still raises."""
    file = path or Path(environ.get("HEADGATE_CONFIG", DEFAULT_FILE))
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "there is no configuration file", where=str(file), remedy="write one with: headgate init"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the configuration: {error}", where=str(file), remedy="make it a readable UTF-8 text file"
        ) from None
    return _examined(text, file, environ)


def parse(text: str, *, where: Path = DEFAULT_FILE, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in `text`. Raises `InvalidConfigError` with every problem found."""
    return _accepted(_examined(text, where, environ))


def _accepted(examined: Examined) -> Config:
    if examined.problems:
        raise invalid(examined.file, examined.problems)
    return examined.config


def _examined(text: str, where: Path, environ: Mapping[str, str]) -> Examined:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise invalid(where, [syntax_problem(str(error))]) from None
    lines = key_lines(text)
    problems: list[Problem] = []
    data = _interpolate(data, (), where.parent, environ, lines, problems)
    _override(data, environ)
    config = _validated(data, lines, problems)
    return Examined(where, _anchor(config, where), sorted(problems, key=lambda problem: problem.line or 0), lines)


def _validated(data: dict[str, Any], lines: dict[KeyPath, int], problems: list[Problem]) -> Config:
    """The configuration; all of what is wrong with it is added to `problems`, what does not fit together included.

    A table with a problem is left out, and the rest is looked at as if it were right.
    """
    left_out: set[KeyPath] = set()
    known = {(problem.key, problem.line) for problem in problems}
    while True:
        try:
            config = Config.model_validate(data)
            break
        except ValidationError as error:
            found = [explain(detail, lines) for detail in error.errors()]
            problems += [problem for problem in found if (problem.key, problem.line) not in known]
            removed = {_leave_out(data, tuple(map(str, detail["loc"]))) for detail in error.errors()}
            if removed == {()}:  # it is nowhere in particular, so there is no rest that could be right
                return Config()
            left_out |= removed
    problems += meaning_problems(config, lines, left_out)
    return config


def _leave_out(data: dict[str, Any], path: KeyPath) -> KeyPath:
    """Remove the table that has a problem: one source, destination or pipeline, or a section of the file."""
    table = data.get(path[0]) if path else None
    if path[:1] and path[0] in _NAMED and isinstance(table, dict) and path[1:] and path[1] in table:
        del table[path[1]]
        return path[:2]
    return path[:1] if path and data.pop(path[0], None) is not None else ()


def _anchor(config: Config, where: Path) -> Config:
    """Paths in the file are relative to the file, not to wherever the command was typed."""
    data_dir = (where.parent / config.project.data_dir).resolve()
    project = config.project.model_copy(update={"data_dir": data_dir})
    return config.model_copy(update={"project": project})


def _interpolate(
    value: Any, path: KeyPath, base: Path, environ: Mapping[str, str], lines: dict[KeyPath, int], bad: list[Problem]
) -> Any:
    """`${VAR}`, `${VAR:-default}` and `${file:PATH}` in every string of the tree; `$$` is one dollar sign."""
    if isinstance(value, dict):
        return {k: _interpolate(v, (*path, k), base, environ, lines, bad) for k, v in value.items()}
    if isinstance(value, list):
        return [_interpolate(v, (*path, str(i)), base, environ, lines, bad) for i, v in enumerate(value)]
    if not isinstance(value, str) or "$" not in value:
        return value

    def resolve(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        try:
            return _resolve(match[1], base, environ)
        except LookupError as error:
            bad.append(Problem(dotted(path), line_of(path, lines), str(error.args[0]), str(error.args[1])))
            return ""

    return _REFERENCE.sub(resolve, value)


def _resolve(reference: str, base: Path, environ: Mapping[str, str]) -> str:
    if reference.startswith("file:"):
        file = base / reference.removeprefix("file:")
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise LookupError(f"cannot read {file}: {error}", "create the file or correct its path") from None
    name, has_default, default = reference.partition(":-")
    if name in environ:
        return environ[name]
    if has_default:
        return default
    raise LookupError(
        f"the environment variable {name} is not set",
        f"set it (export {name}=...) or give a default: ${{{name}:-value}}",
    )


def _override(data: dict[str, Any], environ: Mapping[str, str]) -> None:
    """`HEADGATE__CONTROL__PORT=9000` sets `control.port`. Values are read as TOML where they can be."""
    for variable in sorted(name for name in environ if name.startswith(_OVERRIDE_PREFIX)):
        *parents, key = variable.removeprefix(_OVERRIDE_PREFIX).lower().split("__")
        table = data
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise ConfigError(
                    f"the environment variable {variable} points below {parent}, which is no table",
                    remedy=f"unset {variable} or correct its name",
                )
        table[key] = _toml_value(environ[variable])


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
