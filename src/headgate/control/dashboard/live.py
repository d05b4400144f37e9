"""Changes of pages over SSE. A page is rendered once in a while for all who look at it, and not at all if nobody does.

A viewer is told which parts have changed since it was last told something. One that is slow misses what came between,
and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from headgate.control.dashboard.rendering import Renderer, View
from headgate.control.dashboard.sessions import Session
from headgate.control.dashboard.threads import in_thread

__all__ = ["Live", "TooManyError"]

_log = logging.getLogger(__name__)

_EVERY_S = 2.0
_QUIET_S = 15.0  # after which something is said, so that proxies keep the connection
_MOST_VIEWERS = 200


class TooManyError(Exception):
    """No further viewer is served."""


class _Channel:
    """One view, for all who look at it."""

    def __init__(self) -> None:
        self.viewers = 0
        self.version = 0
        self.parts: dict[str, tuple[int, str]] = {}  # the version in which each last changed
        self.changed = asyncio.Condition()
        self.task: asyncio.Task[None] | None = None
        self._encoded: tuple[tuple[int, int], bytes] = ((-1, -1), b"")

    def take(self, parts: dict[str, str]) -> bool:
        """Take a rendering; whether anything is new in it."""
        fresh = {name: html for name, html in parts.items() if self.parts.get(name, (0, ""))[1] != html}
        if fresh:
            self.version += 1
            self.parts |= {name: (self.version, html) for name, html in fresh.items()}
        return bool(fresh)

    def since(self, version: int) -> bytes:
        """What has changed, as an event; the same bytes for all who were last told at the same time."""
        key = (version, self.version)
        if self._encoded[0] != key:
            changed = {name: html for name, (at, html) in self.parts.items() if at > version}
            self._encoded = key, f"data: {json.dumps(changed)}\n\n".encode()
        return self._encoded[1]


class Live:
    """All viewers of all views. Lives in the event loop of the server."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._channels: dict[View, _Channel] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @property
    def viewers(self) -> int:
        return sum(channel.viewers for channel in self._channels.values())

    def follow(self, view: View, session: Session, may_look: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The events of one viewer, until it may not look any more. Raises `TooManyError` before the first."""
        if self.viewers >= _MOST_VIEWERS:
            raise TooManyError
        return self._follow(view, session, may_look)

    async def _follow(self, view: View, session: Session, may_look: Callable[[], bool]) -> AsyncIterator[bytes]:
        self._loop = asyncio.get_running_loop()
        mark, secret = self._renderer.mark.encode(), session.form_secret.encode()
        channel = self._channels.setdefault(view, _Channel())
        channel.viewers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._render(view, channel))
        seen = 0
        try:
            yield b"retry: 2000\n\n"
            while not self._is_closed:
                has_news = await self._news(channel, seen)
                if not may_look():
                    return
                if has_news:
                    event, seen = channel.since(seen), channel.version
                    yield event.replace(mark, secret)
                else:
                    yield b": nothing new\n\n"
        finally:
            self._leave(view, channel)

    async def _news(self, channel: _Channel, seen: int) -> bool:
        """Wait for something that a viewer has not seen, for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_S), channel.changed:
                await channel.changed.wait_for(lambda: channel.version > seen or self._is_closed)
        return channel.version > seen

    def _leave(self, view: View, channel: _Channel) -> None:
        channel.viewers -= 1
        if not channel.viewers:
            self._channels.pop(view, None)
            if channel.task is not None:
                channel.task.cancel()

    async def _render(self, view: View, channel: _Channel) -> None:
        while True:
            try:
                parts = await in_thread(self._renderer.parts, view)
            except Exception:  # a fault in one page; whoever looks sees the last that could be made
                _log.exception("a page of the dashboard cannot be rendered", extra={"page": view.page.name})
            else:
                if channel.take(parts):
                    async with channel.changed:
                        channel.changed.notify_all()
            await asyncio.sleep(_EVERY_S)

    def close(self) -> None:
        """End every stream; from any thread."""
        self._is_closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is over already
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = [asyncio.ensure_future(_notify(channel)) for channel in self._channels.values()]


async def _notify(channel: _Channel) -> None:
    async with channel.changed:
        channel.changed.notify_all()
