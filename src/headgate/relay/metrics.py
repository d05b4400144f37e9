"""The relay's counters for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.relay.ledger import HostBook
from headgate.relay.parts import Parts
from headgate.relay.timings import Timings
from headgate.wire.atproto import Reason

__all__ = ["RelayCollector", "counters", "exposition", "unverified_fraction"]

_MOST_HOSTS = 50
_MOST_DAMAGE = 20
_HOST_COUNTS: tuple[tuple[str, str, Callable[[HostBook], int]], ...] = (
    ("events_received", "Frames of one of the busiest hosts.", lambda book: book.received),
    ("events_accepted", "Events of such a host that were sent on.", lambda book: book.accepted),
    ("events_dropped", "Events of such a host that were not sent on.", lambda book: book.dropped.total()),
)

_FANOUT = {
    "connections": "WebSocket and SSE connections.",
    "listeners": "Consumers that are sent events.",
    "catching_up": "Consumers that are behind, and read from the disk.",
    "groups": "Kinds of streams that are being served, each encoded once.",
    "kept_bytes": "Encoded events kept in memory for consumers.",
    "position": "The last number that consumers who are not behind were sent.",
    "too_slow": "Consumers cut off because too much waited for them.",
    "refused": "Requests to listen that were refused.",
    "damaged": "Places of the log that could not be read while it was followed.",
    "http_connections": "HTTP connections.",
    "http_refused": "HTTP connections refused because there were too many.",
    "http_timed_out": "HTTP connections closed because a phase of a request took too long.",
}

# An event that was let through with one of these was not shown to come from its account.
_UNVERIFIED = (Reason.BAD_SIGNATURE, Reason.WRONG_HOST, Reason.BAD_DOCUMENT)


def unverified_fraction(book: HostBook) -> float:
    """How much of what was sent on nobody had vouched for. It is to be 0."""
    unverified = sum(book.warnings[reason.value] for reason in _UNVERIFIED)
    return unverified / book.accepted if book.accepted else 0.0


def counters(parts: Parts, listeners: dict[str, int]) -> dict[str, Any]:
    """What the relay counts, as one object."""
    book = parts.ledger.total
    return {
        "received": book.received,
        "accepted": book.accepted,
        "ignored": book.ignored,
        "pending": book.pending,
        "held": book.held,
        "resynced": book.resynced,
        "dropped": dict(book.dropped),
        "warnings": {str(name): count for name, count in book.warnings.items()},
        "unverified_fraction": unverified_fraction(book),
        "seq": parts.reader.head_seq,
        "hosts": _by_status(parts),
        "listeners": listeners,
        "log_damaged_places": len(parts.inspection.damage),
        "log": _log_state(parts),
    }


def _log_state(parts: Parts) -> dict[str, Any]:
    """What the inspection of the log has found; of a log that is damaged all over, the first places."""
    found = parts.inspection
    said: dict[str, Any] = {"inspected_bytes": found.bytes, "inspections": found.rounds}
    if found.damage:
        said["damage"] = [each.text for each in found.damage[:_MOST_DAMAGE]]
    return said | ({"problem": found.problem} if found.problem else {})


def exposition(parts: Parts, listeners: dict[str, int]) -> bytes:
    """Return the metrics page, in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(RelayCollector(parts, listeners))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class RelayCollector(Collector):
    """The counters as they are at this moment."""

    def __init__(self, parts: Parts, listeners: dict[str, int]) -> None:
        self._parts = parts
        self._listeners = listeners

    def collect(self) -> Iterable[Metric]:
        book = self._parts.ledger.total
        yield _counter("events_received", "Frames that hosts sent.", book.received)
        yield _counter("events_accepted", "Events that were sent on.", book.accepted)
        yield _counter("events_ignored", "Frames that are no events.", book.ignored)
        yield _counter("events_resynced", "Commits after a gap, sent on as #sync.", book.resynced)
        yield _labelled("events_dropped", "Events that were not sent on, by reason.", book.dropped)
        yield _labelled("events_warned", "Events sent on although they break a rule, by rule.", book.warnings)
        yield _gauge("events_pending", "Events on their way.", book.pending)
        yield _gauge("events_held", "Events that wait for a DID document.", book.held)
        yield _gauge(
            "unverified_fraction", "Share of events sent on that nobody vouched for.", unverified_fraction(book)
        )
        yield _gauge("seq", "The last number given.", self._parts.reader.head_seq)
        hosts = GaugeMetricFamily("headgate_relay_hosts", "Hosts, by status.", labels=["status"])
        for status, count in _by_status(self._parts).items():
            hosts.add_metric([status], count)
        yield hosts
        yield _counter("received_bytes", "Bytes of the frames that hosts sent.", book.received_bytes)
        yield _histogram("validation_seconds", "Time to decide on an event.", self._parts.ledger.validation)
        yield _histogram(
            "durable_seconds", "Time from a verdict to its event on the disk.", self._parts.sequencer.timings
        )
        yield _histogram("lookup_seconds", "Time to fetch a DID document.", self._parts.ingest.resolver.timings)
        yield _labelled(
            "status_lookups", "New accounts, by the status that their host gives.", self._parts.ingest.statuses.counts
        )
        yield _labelled(
            "siblings_told", "Hosts that other relays were told of, by their answer.", self._parts.siblings.counts
        )
        files = self._parts.reader.files
        yield _gauge("log_bytes", "Size of the log on the disk.", files.size())
        yield _gauge("log_oldest_seq", "The first number that is kept.", self._parts.reader.oldest_seq)
        inspection = self._parts.inspection
        yield _gauge("log_damaged_places", "Places of the log that cannot be read.", len(inspection.damage))
        yield _counter("log_inspected_bytes", "Bytes of the log that were looked through.", inspection.bytes)
        yield _gauge("log_inspected_at", "When all of the log had last been looked through.", inspection.finished_at)
        yield from self._of_hosts()
        for name, value in self._listeners.items():
            yield _gauge(f"fanout_{name}", _FANOUT[name], value)

    def _of_hosts(self) -> Iterable[Metric]:
        """Of the busiest hosts alone: there are thousands, and whoever pleases adds one."""
        books = nlargest(_MOST_HOSTS, self._parts.ledger.hosts().items(), key=lambda item: item[1].received)
        for name, text, count in _HOST_COUNTS:
            family = CounterMetricFamily(f"headgate_relay_host_{name}", text, labels=["host"])
            for host, book in books:
                family.add_metric([host], count(book))
            yield family


def _by_status(parts: Parts) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in parts.store.hosts():
        found[row.status.value] = found.get(row.status.value, 0) + 1
    return found


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"headgate_relay_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"headgate_relay_{name}", text, value=value)


def _histogram(name: str, text: str, timings: Timings) -> Metric:
    return HistogramMetricFamily(f"headgate_relay_{name}", text, buckets=timings.buckets(), sum_value=timings.total_s)


def _labelled(name: str, text: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"headgate_relay_{name}", text, labels=["reason"])
    for reason, count in counts.items():
        family.add_metric([str(reason)], count)
    return family
