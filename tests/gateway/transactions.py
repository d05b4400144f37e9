"""What transactional clients did and saw, and what must never be among it.

Each transaction writes some values, each to a partition; all values are different. `check_transactions` compares what
producers were told with the log as readers of committed messages find it in the end, and with what they were given
meanwhile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tests.gateway.history import Anomaly

__all__ = ["Ended", "Transaction", "TransactionHistory", "check_copies", "check_transactions"]

Ended = Literal["committed", "aborted", "unknown"]
Log = Mapping[int, Sequence[tuple[int, str]]]


class Transaction(NamedTuple):
    """The values of one transaction, by partition, and how it ended as far as its producer knows."""

    values: tuple[tuple[int, str], ...]
    ended: Ended


@dataclass
class TransactionHistory:
    """What every producer did, in its order, and what every consumer of committed messages was given."""

    done: dict[str, list[Transaction]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[str, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))


def check_transactions(history: TransactionHistory, log: Log) -> list[Anomaly]:
    """Every contradiction between a history and what is committed in the log: `(offset, value)` for each partition."""
    return [*_ends(history, log), *_doubled(log), *_reordered(history, log), *_given(history, log)]


def _ends(history: TransactionHistory, log: Log) -> Iterable[Anomaly]:
    places = {(partition, value) for partition, messages in log.items() for _, value in messages}
    for producer, transactions in history.done.items():
        for values, ended in transactions:
            there = [place in places for place in values]
            about = f"{values} of {producer}, {ended}"
            if any(there) and not all(there):
                yield Anomaly("fractured", about)
            elif ended == "committed" and not all(there):
                yield Anomaly("lost", about)
            elif ended == "aborted" and any(there):
                yield Anomaly("aborted read", about)


def _doubled(log: Log) -> Iterable[Anomaly]:
    counts = Counter(value for messages in log.values() for _, value in messages)
    yield from (Anomaly("doubled", value) for value, count in counts.items() if count > 1)


def _reordered(history: TransactionHistory, log: Log) -> Iterable[Anomaly]:
    places = {(partition, value): offset for partition, messages in log.items() for offset, value in messages}
    for producer, transactions in history.done.items():
        last: dict[int, int] = defaultdict(lambda: -1)
        for place in (place for transaction in transactions for place in transaction.values if place in places):
            if places[place] < last[place[0]]:
                yield Anomaly("reordered", f"{place} of {producer}")
            last[place[0]] = max(last[place[0]], places[place])


def _given(history: TransactionHistory, log: Log) -> Iterable[Anomaly]:
    values = {(partition, offset): value for partition, messages in log.items() for offset, value in messages}
    for consumer, seen in history.seen.items():
        for partition, offset, value in seen:
            if (there := values.get((partition, offset))) != value:
                yield Anomaly("aborted read", f"{consumer} was given {value} at {partition}/{offset}; it is {there}")


def check_copies(source: Log, copies: Log) -> list[Anomaly]:
    """What was copied transaction by transaction must be there once, no more and no less."""
    wanted = Counter(value for messages in source.values() for _, value in messages)
    found = Counter(value for messages in copies.values() for _, value in messages)
    return [
        *(Anomaly("not copied", value) for value in wanted - found),
        *(Anomaly("copied twice", value) for value in found - wanted),
    ]
