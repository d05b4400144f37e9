"""Turns pages into HTML, once for all who look.

A rendering is kept for a second. Those who may act see other buttons than those who only look, so there are two of a
page at most; the secret that a session's forms carry is put in afterwards, in place of a mark that no data can hold.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from jinja2 import Environment, PackageLoader, StrictUndefined

from headgate.control.dashboard.history import History
from headgate.control.dashboard.picture import BOX_HEIGHT, BOX_WIDTH
from headgate.control.dashboard.shown import age, clock, health, number, rate, shown_value, size
from headgate.control.dashboard.tail import Tails
from headgate.control.dashboard.views import Page, Part, Scene, Shown, unread
from headgate.model import HeadgateError

__all__ = ["Renderer", "View"]

_FRESH_S = 1.0  # however many look, servers are asked once in so long
_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class View:
    """A page with its arguments, as some people see it."""

    page: Page
    arguments: tuple[tuple[str, str], ...]
    may_act: bool

    @property
    def url(self) -> str:
        path, query = self._path()
        return f"/dashboard{path}{query}" if path != "/" else "/"

    @property
    def live_url(self) -> str:
        """Where its changes are told."""
        path, query = self._path()
        return f"/dashboard/live{path}{query}"

    def _path(self) -> tuple[str, str]:
        path, query = self.page.path, {}
        for name, value in self.arguments:
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
            else:
                query[name] = value
        return path, f"?{urlencode(query)}" if query else ""


@dataclass(slots=True)
class _Kept:
    parts: dict[str, str] = field(default_factory=dict)
    at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)


class Renderer:
    """The templates, and what they have made in the last second."""

    def __init__(self, service: Callable[[], Shown], history: History) -> None:
        self._service = service
        self._history = history
        self._tails = Tails()
        self._templates = _environment()
        self._kept: dict[View, _Kept] = {}
        self._lock = threading.Lock()
        self.mark = secrets.token_urlsafe(24)  # where a session's form secret belongs

    def scene(self, arguments: Mapping[str, str]) -> Scene:
        return Scene(self._service(), self._history, self._tails, arguments)

    def check(self, view: View) -> None:
        """Raise NotFoundError if there is nothing that such a page could be about."""
        view.page.check(self.scene(dict(view.arguments)))

    def parts(self, view: View) -> dict[str, str]:
        """The parts of a page by their names, each an element; may wait for servers."""
        kept = self._entry(view)
        with kept.lock:
            if time.monotonic() - kept.at > _FRESH_S:
                scene = self.scene(dict(view.arguments))
                kept.parts = {part.name: self._part(part, scene, view) for part in view.page.parts}
                kept.at = time.monotonic()
            return kept.parts

    def _entry(self, view: View) -> _Kept:
        with self._lock:
            kept = self._kept.pop(view, None) or _Kept()
            self._kept[view] = kept  # the last to be thrown out
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            return kept

    def _part(self, part: Part, scene: Scene, view: View) -> str:
        """A part that cannot be shown does not take the others with it."""
        name, found = part.name, dict[str, Any]()
        try:
            found = part.find(scene)
        except (psycopg.Error, HeadgateError) as error:
            name, found = "problem", {"problem": unread(error)}
        return self.page(f"{name}.html", part=part, may_act=view.may_act, form_secret=self.mark, here=view.url, **found)

    def page(self, template: str, **values: object) -> str:
        """Any template with these values. Halves of characters, which JSON may hold, are none in a page."""
        return self._templates.get_template(template).render(**values).encode(errors="replace").decode()


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "age": age, "clock": clock, "health": health, "number": number, "rate": rate, "size": size,
        "shown": shown_value, "json": _as_json, "path": _in_path, "since": _since,
    }  # fmt: skip
    made.globals |= {"BOX_WIDTH": BOX_WIDTH, "BOX_HEIGHT": BOX_HEIGHT}
    return made


def _since(at: float | None) -> str:
    """How long ago a moment was."""
    return age(time.time() - at) if at else "-"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _in_path(text: str) -> str:
    return quote(text, safe="", errors="replace")
