"""The rolling hash of each partition, over all that was mirrored, read back from the other cluster.

Reading takes as long as it takes, so most of it comes before the fence; behind the fence only what has come since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.model import StateError
from headgate.shadow.client import Client, borrow_client
from headgate.shadow.cutover.plan import Part
from headgate.shadow.cutover.target import Place, Target
from headgate.shadow.digest import digest_there

__all__ = ["Hashes"]


class Hashes:
    """How far each partition has been read back, and its hash up to there. `tell` hears of what cannot be read."""

    def __init__(self, target: Target, tell: Callable[[str], None]) -> None:
        self._target, self._tell = target, tell
        self._read: dict[Place, tuple[int, bytes]] = {}
        self._gone: set[Place] = set()

    def read(self, parts: Sequence[Part]) -> None:
        """Read on, to where each partition is mirrored to. Raises `StateError` if something else lies there."""
        with borrow_client(self._target.reached) as client:
            for part in parts:
                self._read_one(client, part)

    def check(self, parts: Sequence[Part]) -> int:
        """Read the rest and compare; return how many messages the hashes are of. Raises `StateError` if one differs."""
        self.read(parts)
        compared = 0
        for part in parts:
            _, digest = self._read.get((part.topic, part.partition), (0, part.digest))
            if digest != part.digest:
                raise StateError(
                    f"what lies in {part.topic}/{part.partition} of the other cluster is not what was sent",
                    remedy="delete the topic there, forget it (select kafka.shadow_forget), and mirror it anew",
                )
            compared += part.records if (part.topic, part.partition) in self._read else 0
        return compared

    def _read_one(self, client: Client, part: Part) -> None:
        place = (part.topic, part.partition)
        topic = client.topic(part.topic)
        if not part.records or place in self._gone or topic is None:
            return
        at, digest = self._read.get(place, (part.ext_next - part.records, b""))
        if at < client.bounds(topic, part.partition)[0]:
            self._gone.add(place)
            self._tell(f"{part.topic}/{part.partition} has lost its oldest messages there: its hash is not compared")
            return
        self._read[place] = part.ext_next, digest_there(client, topic, part.partition, at, part.ext_next, digest)
