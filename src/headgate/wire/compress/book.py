"""The driver's half: collects samples per table, says when a dictionary is due, and watches whether it still fits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headgate.wire.compress.dictionary import Dictionary
from headgate.wire.compress.report import Current, Report
from headgate.wire.compress.training import DICTIONARY_BYTES, train

__all__ = ["DictionaryBook", "Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """When to learn, and when to learn again."""

    max_samples: int = 2_000
    max_sample_bytes: int = 4 << 20
    enough_samples: int = 256
    window_messages: int = 10_000  # what "recent" means; a dictionary is judged after so many
    drop: float = 0.2  # a ratio that fell by this share asks for a new dictionary
    dictionary_bytes: int = DICTIONARY_BYTES
    level: int = 3


@dataclass(slots=True)
class _Sums:
    """Bytes in and out of messages; `fade` makes older ones count less."""

    messages: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, report: Report) -> None:
        self.messages += report.message_count
        self.bytes_in += report.bytes_in
        self.bytes_out += report.bytes_out

    def fade(self) -> None:
        self.messages, self.bytes_in, self.bytes_out = self.messages // 2, self.bytes_in // 2, self.bytes_out // 2

    @property
    def ratio(self) -> float:
        return self.bytes_in / self.bytes_out if self.bytes_out else 1.0


@dataclass(slots=True)
class _Page:
    """What is known of one table."""

    samples: deque[bytes] = field(default_factory=deque)
    sample_bytes: int = 0
    recent: _Sums = field(default_factory=_Sums)  # under the current dictionary
    first_ratio: float | None = None  # the first whole window's under the current dictionary
    is_stale: bool = False
    wait_messages: int = 0  # after samples that gained nothing: not before so many more
    last_wait: int = 0


class DictionaryBook:
    """All tables of one bridge. Samples are the latest ones, not a fair share of all times: data drifts."""

    def __init__(self, policy: Policy | None = None, current: Current | None = None) -> None:
        self.current = current or Current()
        self._policy = policy or Policy()
        self._pages: dict[str, _Page] = {}

    def take(self, report: Report) -> None:
        """Learn from one report; reports may come late and in any order."""
        page = self._pages.setdefault(report.table, _Page())
        self._keep(page, report.samples)
        page.wait_messages = max(0, page.wait_messages - report.message_count)
        if report.dictionary_id == self.current.ids.get(report.table, ""):
            page.recent.add(report)
            if page.recent.messages >= self._policy.window_messages:
                self._judge(report.table, page)

    def due(self) -> list[str]:
        """Tables that are worth a call of `train` now: no dictionary yet or a stale one, and samples enough."""
        return [
            table
            for table, page in self._pages.items()
            if (page.is_stale or table not in self.current.ids)
            and len(page.samples) >= self._policy.enough_samples
            and not page.wait_messages
        ]

    def train(self, table: str) -> Dictionary | None:
        """A dictionary of the table's samples, not yet in use; takes some 10 ms. None if it would gain nothing.

        After None the table is not due for a while, and for twice as long each time.
        """
        page, policy = self._pages[table], self._policy
        dictionary = train(list(page.samples), policy.dictionary_bytes, policy.level)
        if dictionary is None:
            page.last_wait = max(policy.window_messages, 2 * page.last_wait)
            page.wait_messages = page.last_wait
        return dictionary

    def adopt(self, table: str, dictionary: Dictionary) -> None:
        """From now on the table's dictionary. It must be in the bucket already."""
        self.current = self.current.with_dictionary(table, dictionary.id)
        self._pages[table] = _Page()

    def ratios(self) -> dict[str, float]:
        """Bytes in / bytes out of recent messages, by table."""
        return {table: page.recent.ratio for table, page in self._pages.items() if page.recent.messages}

    def _keep(self, page: _Page, samples: tuple[bytes, ...]) -> None:
        page.samples.extend(samples)
        page.sample_bytes += sum(map(len, samples))
        while len(page.samples) > self._policy.max_samples or page.sample_bytes > self._policy.max_sample_bytes:
            page.sample_bytes -= len(page.samples.popleft())

    def _judge(self, table: str, page: _Page) -> None:
        """At the end of a window: has the ratio fallen since the first one?"""
        ratio = page.recent.ratio
        page.recent.fade()
        if page.first_ratio is None:
            page.first_ratio = ratio
        elif table in self.current.ids and not page.is_stale and ratio < page.first_ratio * (1 - self._policy.drop):
            page.is_stale = True
            page.samples.clear()  # of the time when the old dictionary fitted
            page.sample_bytes = 0
