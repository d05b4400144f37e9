"""The `broker` source of a pipeline."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from headgate.sources.base import Lag, Offset
from headgate.sources.broker.group import BrokerGroup, StreamOffset
from headgate.sources.broker.options import BrokerSourceOptions
from headgate.sources.polled import PolledSource

__all__ = ["BrokerSource"]


class BrokerSource(PolledSource):
    """Events of a group, which the broker keeps until the group's cursor has passed them."""

    format = "pgbroker"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        super().__init__(name, options, origin)
        self._options = BrokerSourceOptions.from_spark(options)
        self._group = BrokerGroup(self._options)

    def commit(self, end: Offset) -> None:
        self._group.commit(StreamOffset.from_spark(end))

    def stop(self) -> None:
        self._group.close()

    def check(self) -> str:
        try:
            self._group.check()
        finally:
            self._group.close()
        return f"group {self._options.group} in the schema {self._options.schema}"

    def lag(self, end: Offset | None) -> Lag | None:
        """Positions are of all groups, so this is how much there is to look at."""
        if end is None:
            return None
        with closing(BrokerGroup(self._options)) as group:  # not that of `commit`, which another thread uses
            newest = group.newest()
        # Every partition of the log begins with a number of its own; what is left of the one before is not known.
        return Lag(rows=max(0, newest - max(StreamOffset.from_spark(end).pos, newest >> 32 << 32)))

    def describe(self) -> dict[str, Any]:
        wanted = self._options.subscribe or self._options.condition or "all events"
        return {"group": self._options.group, "events": wanted}
