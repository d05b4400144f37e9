"""Turns what is wrong with a configuration into problems a person can fix: key, line, message, remedy."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from headgate.config.models import Config
from headgate.config.places import KeyPath
from headgate.model import ConfigError

__all__ = [
    "InvalidConfigError",
    "Problem",
    "dotted",
    "explain",
    "invalid",
    "line_of",
    "nearest",
    "syntax_problem",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the file: which key, where it stands, what is wrong, what to do."""

    key: str
    line: int | None
    message: str
    remedy: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key}: {self.message}" if self.key else f"{place}{self.message}"


class InvalidConfigError(ConfigError, kind=ConfigError.kind):
    """The file has one or more problems; `problems` holds them all."""

    def __init__(self, message: str, *, remedy: str = "", where: str = "", problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, remedy=remedy, where=where)
        self.problems = problems


def invalid(where: Path, problems: list[Problem]) -> InvalidConfigError:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    text = "".join(f"\n  {problem}\n    -> {problem.remedy}" for problem in problems)
    return InvalidConfigError(
        f"{count} in the configuration{text}",
        where=str(where),
        remedy="correct the file, then try: headgate validate",
        problems=tuple(problems),
    )


def syntax_problem(message: str) -> Problem:
    line = re.search(r"line (\d+)", message)
    text = re.sub(r" \(at .*\)$", "", message)
    return Problem("", int(line[1]) if line else None, f"not valid TOML: {text}", "correct the syntax on that line")


def explain(detail: ErrorDetails, lines: dict[KeyPath, int]) -> Problem:
    path, message, known = _locate(detail)
    if detail["type"] == "extra_forbidden":
        message = "unknown key"
        remedy = nearest(path[-1], known) or f"known keys here: {', '.join(sorted(known))}"
    elif detail["type"] == "missing":
        message, remedy = "this key is required", f"add: {path[-1]} = ..."
    elif detail["type"] == "union_tag_not_found":
        message, remedy = "the key type is required", f'add: type = "..." ({_expected(detail)})'
    elif detail["type"] == "union_tag_invalid":
        tag = str(detail["ctx"]["tag"])
        message = f"unknown type {tag!r}"
        remedy = nearest(tag, re.findall(r"'(\w[\w-]*)'", _expected(detail))) or f"known types: {_expected(detail)}"
    else:
        remedy = f"{_documentation(path)}".strip() or "correct the value"
    return Problem(dotted(path), line_of(path, lines), message, remedy)


def _expected(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    return str(context.get("expected_tags", "one of the types in: headgate schema"))


def _locate(detail: ErrorDetails) -> tuple[KeyPath, str, list[str]]:
    """The key path as it stands in the file (pydantic adds the tag of a union to it), and its table's known keys."""
    path: list[str] = []
    model: Any = Config
    known: list[str] = list(Config.model_fields)
    for part in detail["loc"]:
        step, inner = _step(model, str(part))
        if step:
            path.append(str(part))
        if inner is not None:
            model = inner
            if len(models := _members(model)) == 1:
                known = list(models[0].model_fields)
    message = detail["msg"].removeprefix("Value error, ")
    return tuple(path), message[:1].lower() + message[1:], known


def _step(model: Any, part: str) -> tuple[bool, Any]:
    """Follow one part of a pydantic location: is it a real key, and what is the type below it?"""
    for candidate in _members(model):
        tag = candidate.model_fields.get("type")
        if tag is not None and len(_members(model)) > 1 and get_args(tag.annotation) == (part,):
            return False, candidate
        if part in candidate.model_fields:
            return True, candidate.model_fields[part].annotation
    arguments = [a for a in get_args(model) if a is not Ellipsis]
    return True, arguments[-1] if arguments else None


def _members(annotation: Any) -> list[type[BaseModel]]:
    """The models inside an annotation such as `Annotated[A | B, ...]`; containers are not looked into."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if getattr(annotation, "__origin__", None) in (dict, tuple, list):
        return []
    return [model for argument in get_args(annotation) for model in _members(argument)]


def _documentation(path: KeyPath) -> str:
    model: Any = Config
    description = ""
    for part in path:
        for candidate in _members(model):
            if part in candidate.model_fields:
                description = candidate.model_fields[part].description or ""
                break
        _, model = _step(model, part)
    return description


def nearest(word: str, known: list[str]) -> str:
    """`did you mean ...?`, or nothing if no known word is like it."""
    match = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {match[0]}?" if match else ""


def dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text


def line_of(path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    """The line of the key, or of the nearest table around it."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None
