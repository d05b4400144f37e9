"""How far each partition goes, its newest batches in memory, and who waits for more.

What is known of a partition only moves forward. It may lag behind what another gateway has appended, by as long as a
notification takes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from operator import itemgetter
from struct import Struct

from headgate.gateway.store.aborts import Aborts
from headgate.wire.kafka.batch import TRANSACTIONAL_BIT

__all__ = ["Buffer", "Tail", "Tails", "served"]

Buffer = bytes | memoryview
_PREFIX = Struct(">q4si")
_PREFIX_BYTES = 16
_ATTRIBUTES_AT = 22  # the lower byte
_LAST = itemgetter(1)
_Cached = tuple[int, int, memoryview]  # base offset, last offset, the batch as its producer sent it


def served(base_offset: int, data: memoryview) -> tuple[bytes, memoryview]:
    """A batch with its place in the log and the leader's epoch, which is always 0. The bytes are not copied."""
    return _PREFIX.pack(base_offset, data[8:12].tobytes(), 0), data[_PREFIX_BYTES:]


class Tail:
    """One partition."""

    __slots__ = (
        "_stable_at",
        "_stable_offset",
        "aborts",
        "batches",
        "cut",
        "is_known",
        "log_start_offset",
        "next_offset",
        "waiters",
    )

    def __init__(self) -> None:
        self.is_known = False  # since notifications have been coming in
        self.next_offset = 0
        self.log_start_offset = 0
        self._stable_offset = 0
        self._stable_at = -1  # where the partition ended when that was so: it changes with the end only
        self.aborts = Aborts()
        self.batches: list[_Cached] = []
        self.cut = 0  # how many of the batches at the front are gone; they are removed many at a time
        self.waiters: set[Callable[[], None]] = set()

    def end_for(self, *, is_committed: bool) -> int | None:
        """Where a reader's messages end: of all of them, or of the committed ones. None: that is not known."""
        if not is_committed:
            return self.next_offset
        if self._stable_at != self.next_offset:
            return None
        return self.stable_offset

    @property
    def stable_offset(self) -> int:
        """How far the partition is stable at least."""
        return max(self._stable_offset, self.log_start_offset)

    def stands(self, next_offset: int, stable_offset: int) -> None:
        """Note the last stable offset of a partition that ended there."""
        self._stable_offset = max(self._stable_offset, stable_offset)
        self._stable_at = max(self._stable_at, next_offset)

    def has(self, offset: int) -> bool:
        """Whether memory goes back so far."""
        return self.cut < len(self.batches) and self.batches[self.cut][0] <= offset

    def cached(self, offset: int, stop: int, max_bytes: int, *, is_first: bool) -> tuple[list[Buffer], int, int]:
        """Batches from `offset` to `stop`, their size, and where they end; the first even if it is too large."""
        buffers: list[Buffer] = []
        size, end = 0, offset
        for index in range(bisect_left(self.batches, offset, self.cut, key=_LAST), len(self.batches)):
            base_offset, last_offset, data = self.batches[index]
            if base_offset >= stop or (size + len(data) > max_bytes and not (is_first and not buffers)):
                break
            buffers += served(base_offset, data)
            size += len(data)
            end = last_offset + 1
        return buffers, size, end


class Tails:
    """All partitions that somebody has asked for or written to."""

    def __init__(self, cache_bytes: int) -> None:
        self._tails: dict[int, Tail] = {}
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0
        self._order: deque[int] = deque()  # the partition of every batch in memory, the oldest first
        self._stale: Counter[int] = Counter()  # how many of those, at the front, were forgotten since

    def get(self, part_id: int) -> Tail:
        tail = self._tails.get(part_id)
        if tail is None:
            tail = self._tails[part_id] = Tail()
        return tail

    def watched(self) -> list[int]:
        return [part_id for part_id, tail in self._tails.items() if tail.is_known or tail.waiters]

    def appended(self, part_id: int, base_offset: int, last_offset: int, data: memoryview) -> None:
        """A batch that has been committed. `moved` must follow.

        Memory reaches to the end of the partition, or is empty. So a batch that was sent twice is not taken, nor one
        after which somebody else's has been heard of.
        """
        tail = self.get(part_id)
        if base_offset < tail.next_offset:
            return
        if base_offset > tail.next_offset:
            self._forget_batches(part_id, tail)
        if len(data) <= self._cache_bytes:
            tail.batches.append((base_offset, last_offset, data))
            if data[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
                tail.aborts.add(base_offset, data)
            self._order.append(part_id)
            self._cached_bytes += len(data)
            self._evict()

    def _evict(self) -> None:
        while self._cached_bytes > self._cache_bytes:
            part_id = self._order.popleft()
            if self._stale[part_id]:
                self._stale[part_id] -= 1
                continue
            tail = self._tails[part_id]
            self._cached_bytes -= len(tail.batches[tail.cut][2])
            tail.batches[tail.cut] = (*tail.batches[tail.cut][:2], memoryview(b""))
            tail.cut += 1
            if tail.cut * 2 > len(tail.batches):
                del tail.batches[: tail.cut]
                tail.cut = 0
                if tail.batches:
                    tail.aborts.forget(tail.batches[0][0])

    def _forget_batches(self, part_id: int, tail: Tail) -> None:
        self._cached_bytes -= sum(len(data) for _, _, data in tail.batches)
        self._stale[part_id] += len(tail.batches) - tail.cut
        tail.batches, tail.cut = [], 0
        tail.aborts.clear()

    def moved(
        self,
        part_id: int,
        next_offset: int,
        log_start_offset: int,
        stable_offset: int | None = None,
        *,
        is_known: bool = False,
    ) -> None:
        """Where a partition begins and ends, at least, and how far it is stable, if that is known."""
        tail = self.get(part_id)
        if stable_offset is not None:
            tail.stands(next_offset, stable_offset)
        tail.log_start_offset = max(tail.log_start_offset, log_start_offset)
        tail.is_known = tail.is_known or is_known
        if next_offset > tail.next_offset:
            tail.next_offset = next_offset
            if tail.batches and tail.batches[-1][1] + 1 < next_offset:
                self._forget_batches(part_id, tail)
            for wake in tuple(tail.waiters):
                wake()

    def heard(self, part_id: int, next_offset: int, log_start_offset: int, stable_offset: int | None = None) -> None:
        """Apply another gateway's announcement, as `moved`; about a partition without readers here it is dropped."""
        if part_id in self._tails:
            self.moved(part_id, next_offset, log_start_offset, stable_offset)

    def forget(self, part_ids: Iterable[int]) -> None:
        """Partitions that are gone."""
        for part_id in part_ids:
            if (tail := self._tails.pop(part_id, None)) is not None:
                self._forget_batches(part_id, tail)
                for wake in tuple(tail.waiters):
                    wake()

    def doubt(self) -> None:
        """Notifications may have been missed: the next to ask about a partition asks PostgreSQL."""
        for tail in self._tails.values():
            tail.is_known = False

    async def wait(self, ends: Collection[tuple[int, int, bool]], timeout_s: float) -> None:
        """Until one of the partitions has moved beyond the offset beside it, or the time is over.

        Whoever reads what is committed waits for that to move, and is woken to find out if it is not known.
        """
        woken = asyncio.Event()
        tails = [self.get(part_id) for part_id, _, _ in ends]
        for tail in tails:
            tail.waiters.add(woken.set)
        try:
            if all(self._is_at(part_id, end, is_committed=committed) for part_id, end, committed in ends):
                async with asyncio.timeout(timeout_s):
                    await woken.wait()
        except TimeoutError:
            pass
        finally:
            for tail in tails:
                tail.waiters.discard(woken.set)

    def _is_at(self, part_id: int, end: int, *, is_committed: bool) -> bool:
        known = self.get(part_id).end_for(is_committed=is_committed)
        return known is not None and known <= end
