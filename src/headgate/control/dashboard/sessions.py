"""Login sessions of the dashboard, and a limit on wrong tokens from one address.

A cookie is a random text that means something here and until it expires, is logged out or the process ends. It is not
made of the token, so it is of no use elsewhere. Every session has a secret of its own that its forms must carry: a
page of another site can have a browser send the cookie, but cannot know the secret.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["LIFETIME_S", "Attempts", "Session", "Sessions"]

LIFETIME_S = 12 * 3600
_MOST_SESSIONS = 1000
_MOST_ADDRESSES = 10_000
_FAILURES = 10  # of one address, in so many seconds
_WINDOW_S = 60.0


@dataclass(slots=True)
class Session:
    """What is known of one who looks."""

    may_act: bool
    ends_at: float = float("inf")
    form_secret: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    told: tuple[str, str] | None = None  # what came of the last action, until a page has shown it: health and words

    def owns(self, form_secret: str) -> bool:
        """Whether a form was made for this session."""
        return hmac.compare_digest(form_secret.encode(), self.form_secret.encode())

    def take_told(self) -> tuple[str, str] | None:
        told, self.told = self.told, None
        return told


class Sessions:
    """The cookies that were given out."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._open: dict[str, Session] = {}
        self.nobody = Session(may_act=False)  # all who look without having logged in

    def begin(self) -> str:
        """A new one; if there are too many, the oldest ends."""
        if len(self._open) >= _MOST_SESSIONS:
            del self._open[next(iter(self._open))]
        cookie = secrets.token_urlsafe(32)
        self._open[cookie] = Session(may_act=True, ends_at=self._now() + LIFETIME_S)
        return cookie

    def find(self, cookie: str) -> Session | None:
        found = self._open.get(cookie)
        if found is not None and found.ends_at <= self._now():
            self.end(cookie)
            return None
        return found

    def is_open(self, cookie: str) -> bool:
        return self.find(cookie) is not None

    def end(self, cookie: str) -> None:
        self._open.pop(cookie, None)


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
