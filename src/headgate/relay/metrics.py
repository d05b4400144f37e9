"""The relay's counters for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.model import metric_names as names
from headgate.relay.ledger import HostBook
from headgate.relay.parts import Parts
from headgate.runtime.timings import Timings
from headgate.wire.atproto import Reason

__all__ = ["RelayCollector", "counters", "exposition", "families", "unverified_fraction"]

_MOST_HOSTS = 50
_MOST_DAMAGE = 20
_HOST_COUNTS: tuple[tuple[str, str, Callable[[HostBook], int]], ...] = (
    (names.RELAY_HOST_EVENTS_RECEIVED, "Frames of one of the busiest hosts.", lambda book: book.received),
    (names.RELAY_HOST_EVENTS_ACCEPTED, "Events of such a host that were sent on.", lambda book: book.accepted),
    (
        names.RELAY_HOST_EVENTS_DROPPED,
        "Events of such a host that were not sent on.",
        lambda book: book.dropped.total(),
    ),
)

_FANOUT = {
    "connections": (names.RELAY_FANOUT_CONNECTIONS, "WebSocket and SSE connections."),
    "listeners": (names.RELAY_FANOUT_LISTENERS, "Consumers that are sent events."),
    "catching_up": (names.RELAY_FANOUT_CATCHING_UP, "Consumers that are behind, and read from the disk."),
    "groups": (names.RELAY_FANOUT_GROUPS, "Kinds of streams that are being served, each encoded once."),
    "kept_bytes": (names.RELAY_FANOUT_KEPT_BYTES, "Encoded events kept in memory for consumers."),
    "position": (names.RELAY_FANOUT_POSITION, "The last number that consumers who are not behind were sent."),
    "too_slow": (names.RELAY_FANOUT_TOO_SLOW, "Consumers cut off because too much waited for them."),
    "refused": (names.RELAY_FANOUT_REFUSED, "Requests to listen that were refused."),
    "damaged": (names.RELAY_FANOUT_DAMAGED, "Places of the log that could not be read while it was followed."),
    "http_connections": (names.RELAY_FANOUT_HTTP_CONNECTIONS, "HTTP connections."),
    "http_refused": (names.RELAY_FANOUT_HTTP_REFUSED, "HTTP connections refused because there were too many."),
    "http_timed_out": (
        names.RELAY_FANOUT_HTTP_TIMED_OUT,
        "HTTP connections closed because a phase of a request took too long.",
    ),
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


def families(parts: Parts, listeners: dict[str, int], hosts: dict[str, int]) -> list[dict[str, Any]]:
    """Return the same without single hosts, for the metrics page of a control plane that this relay runs beside.

    `hosts` are their numbers by status, which whoever asks every second has counted already.
    """
    return [
        {
            "name": family.name,
            "text": family.documentation,
            "type": family.type,
            "samples": [[sample.name, sample.labels, sample.value] for sample in family.samples],
        }
        for family in RelayCollector(parts, listeners, hosts).collect()
    ]


class RelayCollector(Collector):
    """The counters as they are at this moment."""

    def __init__(self, parts: Parts, listeners: dict[str, int], hosts: dict[str, int] | None = None) -> None:
        self._parts = parts
        self._listeners = listeners
        self._hosts = hosts

    def collect(self) -> Iterable[Metric]:
        book = self._parts.ledger.total
        yield _counter(names.RELAY_EVENTS_RECEIVED, "Frames that hosts sent.", book.received)
        yield _counter(names.RELAY_EVENTS_ACCEPTED, "Events that were sent on.", book.accepted)
        yield _counter(names.RELAY_EVENTS_IGNORED, "Frames that are no events.", book.ignored)
        yield _counter(names.RELAY_EVENTS_RESYNCED, "Commits after a gap, sent on as #sync.", book.resynced)
        yield _labelled(names.RELAY_EVENTS_DROPPED, "Events that were not sent on, by reason.", book.dropped)
        yield _labelled(names.RELAY_EVENTS_WARNED, "Events sent on although they break a rule, by rule.", book.warnings)
        yield _gauge(names.RELAY_EVENTS_PENDING, "Events on their way.", book.pending)
        yield _gauge(names.RELAY_EVENTS_HELD, "Events that wait for a DID document.", book.held)
        yield _gauge(
            names.RELAY_UNVERIFIED_FRACTION,
            "Share of events sent on that nobody vouched for.",
            unverified_fraction(book),
        )
        yield _gauge(names.RELAY_SEQ, "The last number given.", self._parts.reader.head_seq)
        hosts = GaugeMetricFamily(names.RELAY_HOSTS, "Hosts, by status.", labels=[names.STATUS_LABEL])
        for status, count in (_by_status(self._parts) if self._hosts is None else self._hosts).items():
            hosts.add_metric([status], count)
        yield hosts
        yield _counter(names.RELAY_RECEIVED_BYTES, "Bytes of the frames that hosts sent.", book.received_bytes)
        yield _histogram(
            names.RELAY_VALIDATION_SECONDS,
            "Time to decide on an event.",
            self._parts.ledger.validation,
        )
        yield _histogram(
            names.RELAY_DURABLE_SECONDS, "Time from a verdict to its event on the disk.", self._parts.sequencer.timings
        )
        yield _histogram(
            names.RELAY_LOOKUP_SECONDS, "Time to fetch a DID document.", self._parts.ingest.resolver.timings
        )
        yield _labelled(
            names.RELAY_STATUS_LOOKUPS,
            "New accounts, by the status that their host gives.",
            self._parts.ingest.statuses.counts,
        )
        yield _labelled(
            names.RELAY_SIBLINGS_TOLD,
            "Hosts that other relays were told of, by their answer.",
            self._parts.siblings.counts,
        )
        files = self._parts.reader.files
        yield _gauge(names.RELAY_LOG_BYTES, "Size of the log on the disk.", files.size())
        yield _gauge(names.RELAY_LOG_OLDEST_SEQ, "The first number that is kept.", self._parts.reader.oldest_seq)
        inspection = self._parts.inspection
        yield _gauge(names.RELAY_LOG_DAMAGED_PLACES, "Places of the log that cannot be read.", len(inspection.damage))
        yield _counter(names.RELAY_LOG_INSPECTED_BYTES, "Bytes of the log that were looked through.", inspection.bytes)
        yield _gauge(
            names.RELAY_LOG_INSPECTED_AT, "When all of the log had last been looked through.", inspection.finished_at
        )
        if self._hosts is None:
            yield from self._of_hosts()
        for name, value in self._listeners.items():
            yield _gauge(*_FANOUT[name], value)

    def _of_hosts(self) -> Iterable[Metric]:
        """Of the busiest hosts alone: there are thousands, and whoever pleases adds one."""
        books = nlargest(_MOST_HOSTS, self._parts.ledger.hosts().items(), key=lambda item: item[1].received)
        for name, text, count in _HOST_COUNTS:
            family = CounterMetricFamily(name, text, labels=[names.HOST_LABEL])
            for host, book in books:
                family.add_metric([host], count(book))
            yield family


def _by_status(parts: Parts) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in parts.store.hosts():
        found[row.status.value] = found.get(row.status.value, 0) + 1
    return found


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _histogram(name: str, text: str, timings: Timings) -> Metric:
    return HistogramMetricFamily(name, text, buckets=timings.buckets(), sum_value=timings.total_s)


def _labelled(name: str, text: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[names.REASON_LABEL])
    for reason, count in counts.items():
        family.add_metric([str(reason)], count)
    return family
