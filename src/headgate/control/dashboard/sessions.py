"""Login sessions of the dashboard, and a limit on wrong tokens from one address.

A cookie is a random text that means something here and until it expires, is logged out or the process ends. It is not
made of the token, so it is of no use elsewhere.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

__all__ = ["LIFETIME_S", "Attempts", "Sessions"]

LIFETIME_S = 12 * 3600
_MOST_SESSIONS = 1000
_MOST_ADDRESSES = 10_000
_FAILURES = 10  # of one address, in so many seconds
_WINDOW_S = 60.0


class Sessions:
    """The cookies that were given out."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ends: dict[str, float] = {}

    def begin(self) -> str:
        """A new one; if there are too many, the oldest ends."""
        if len(self._ends) >= _MOST_SESSIONS:
            del self._ends[next(iter(self._ends))]
        cookie = secrets.token_urlsafe(32)
        self._ends[cookie] = self._now() + LIFETIME_S
        return cookie

    def is_open(self, cookie: str) -> bool:
        end = self._ends.get(cookie)
        if end is not None and end <= self._now():
            self.end(cookie)
            return False
        return end is not None

    def end(self, cookie: str) -> None:
        self._ends.pop(cookie, None)


class Attempts:
    """Wrong tokens, by the address that they came from."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failures: dict[str, tuple[int, float]] = {}  # how many, and until when they count

    def wait_s(self, address: str) -> float:
        """How long this address has to wait before it is listened to; 0: not at all."""
        count, until = self._failures.get(address, (0, 0.0))
        return max(0.0, until - self._now()) if count >= _FAILURES else 0.0

    def fail(self, address: str) -> None:
        now = self._now()
        count, until = self._failures.pop(address, (0, 0.0))
        if len(self._failures) >= _MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = (count + 1, until) if until > now else (1, now + _WINDOW_S)
