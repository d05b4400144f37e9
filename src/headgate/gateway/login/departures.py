"""Users who were removed are not served any longer: their connections end as soon as a gateway hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from headgate.gateway.health import Health
from headgate.gateway.login import store
from headgate.gateway.login.users import Users
from headgate.gateway.outage import NO_DATABASE

__all__ = ["Departures"]

_PART = "users"
_RETRY_S = 1.0
_REST_S = 0.1  # whoever may connect to the database may notify, as often as he likes


class Guest(Protocol):
    """A connection, as far as it matters here."""

    @property
    def credential(self) -> tuple[str, str] | None: ...

    def expel(self, why: str) -> None: ...


class Departures:
    """Looks after each change of the users whether all that are connected still are users."""

    def __init__(self, users: Users, health: Health, guests: Callable[[], Iterable[Guest]]) -> None:
        self._users = users
        self._health = health
        self._guests = guests
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Users have changed, or may have."""
        self._users.changed()
        self._changed.set()

    async def run(self) -> None:
        """Expel whoever is gone, for ever; a database that is away is asked again."""
        self._changed.set()  # who begins again has missed something
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._expel()
            except NO_DATABASE as error:
                self._health.failed(_PART, error)
                self._changed.set()
                await asyncio.sleep(_RETRY_S)
            else:
                self._health.works(_PART)
                await asyncio.sleep(_REST_S)

    async def _expel(self) -> None:
        guests = [(guest, guest.credential) for guest in self._guests() if guest.credential]
        if not guests:
            return
        async with self._users.connection() as connection:
            remaining = await store.remaining(connection, {credential for _, credential in guests})
        for guest, credential in guests:
            if credential not in remaining and guest.credential == credential:
                guest.expel("the user was removed")
