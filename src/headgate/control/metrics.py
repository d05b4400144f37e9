"""Every metric of the control plane, in Prometheus form: what it means, and where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headgate import __version__
from headgate.gateway.metrics import LATENCY_BUCKETS_S
from headgate.model import Status
from headgate.model import metric_names as names
from headgate.pipeline.report import Report

__all__ = ["BROKER_KEYS", "CONTENT_TYPE", "GATEWAY_KEYS", "REGISTRY_KEYS", "collectors", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: dict[str, tuple[str, Callable[[Report], float]]] = {
    names.ROWS: ("Rows delivered and acknowledged.", lambda r: r.rows_total),
    names.PAYLOAD_BYTES: ("Payload bytes delivered.", lambda r: r.bytes_total),
    names.DUPLICATES: ("Rows a destination had already.", lambda r: r.duplicates_total),
    names.BATCHES: ("Batches delivered.", lambda r: r.batches_total),
    names.RESTARTS: ("Times the query was started again.", lambda r: r.restarts_total),
    names.ERRORS: ("Failures to complete a batch or to run the query.", lambda r: r.errors_total),
    names.ABANDONED_BATCHES: ("Batches given up by hand.", lambda r: r.abandoned_total),
}

_GAUGES: dict[str, tuple[str, Callable[[Report], float | None]]] = {
    names.ROWS_PER_SECOND: ("Rows delivered per second, over ten seconds.", lambda r: r.rows_per_second),
    names.LAG_ROWS: ("Rows at the source that are not delivered yet.", lambda r: r.lag_rows),
    names.LAG_BYTES: ("Bytes at the source that are not delivered yet.", lambda r: r.lag_bytes),
    names.LAG_SECONDS: ("Age of the oldest row that is not delivered yet.", lambda r: r.lag_seconds),
    names.BATCH_SECONDS: ("Duration of the last batch.", lambda r: r.last_batch_seconds),
    names.FAILURES_IN_ROW: ("Failures to complete the present batch.", lambda r: r.failures_in_row),
    names.LAST_DELIVERY_TIMESTAMP_SECONDS: ("When a row was last delivered.", lambda r: r.last_delivery),
}


# Of CDC sources: is the database being kept up with, and is WAL piling up?
_SOURCE_GAUGES = {
    names.SOURCE_LAG_BYTES: ("WAL written by the server and not confirmed yet.", "lag_bytes"),
    names.SOURCE_SPOOL_BYTES: ("Changes on disk that wait for delivery.", "spool_bytes"),
    names.SOURCE_RECEIVED_LSN: ("The last WAL position received.", "received_lsn"),
    names.SOURCE_CONFIRMED_LSN: ("The WAL position confirmed to the server.", "confirmed_lsn"),
    names.SOURCE_ROWS_SET_ASIDE: (
        "Rows that could not become events; see headgate dlq.",
        "rows_set_aside",
    ),
    names.SLOT_RETAINED_BYTES: ("WAL the server keeps for the slot.", "slot_retained_bytes"),
    names.SLOT_SAFE_WAL_BYTES: (
        "WAL that may still be written before the slot is lost; absent without max_slot_wal_keep_size.",
        "slot_safe_wal_bytes",
    ),
}
# Of mirrors: how far behind are they?
_SHADOW_GAUGES = {
    names.SHADOW_LAG_RECORDS: ("Messages that the other cluster does not have so far.", "lag_records"),
    names.SHADOW_LAG_BYTES: ("About so many bytes they have.", "lag_bytes"),
    names.SHADOW_LAG_SECONDS: ("Seconds since the oldest of them was written.", "lag_seconds"),
    names.SHADOW_REJECTED: ("Batches that the other cluster has refused, until they are sent again.", "rejected"),
    names.SHADOW_GROUPS_FAILING: (
        "1 while offsets of groups cannot be pushed; see headgate shadow status.",
        "groups_failing",
    ),
}
_SOURCE_COUNTERS = {
    names.SOURCE_TRANSACTIONS: ("Transactions received since the reader connected.", "transactions_total"),
    names.SOURCE_CHANGES: ("Changes received since the reader connected.", "changes_total"),
    names.SOURCE_RECONNECTS: ("Times the reader connected again.", "reconnects_total"),
}


_ROUTING: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (CounterMetricFamily, names.MESSAGES_ROUTED, "Rows delivered where they wanted to go.", "routed_total"),
    (GaugeMetricFamily, names.DESTINATIONS_ACTIVE, "Destinations this run has used.", "destinations_active"),
    (GaugeMetricFamily, names.DESTINATION_CIRCUIT_OPEN, "Destinations left alone for a while.", "circuits_open"),
    (CounterMetricFamily, names.ROUTING_ABSENT, "Changes without the routing column.", "absent_total"),
    (CounterMetricFamily, names.DEAD_LETTERS, "Rows put aside.", "dead_letters_total"),
    (GaugeMetricFamily, names.ROUTING_EPOCH, "Which version of the routes is in use.", "epoch"),
)
_ROUTING_BY = (
    (names.DESTINATIONS_REJECTED, "Rows that may not have their destination.", "refused_total", names.REASON_LABEL),
    (names.ROUTING_UNMATCHED, "Rows that no route matches, by what was done.", "unmatched_total", names.ACTION_LABEL),
)

_SPARK: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (
        CounterMetricFamily,
        names.SPARK_INPUT_ROWS,
        "Rows that Spark has read; where rows never enter the JVM, pointers to them.",
        "input_rows_total",
    ),
    (
        GaugeMetricFamily,
        names.SPARK_INPUT_ROWS_PER_SECOND,
        "Rows a second that came in during the last batch, as Spark has it.",
        "input_rows_per_second",
    ),
    (
        GaugeMetricFamily,
        names.SPARK_PROCESSED_ROWS_PER_SECOND,
        "Rows a second that the last batch processed, as Spark has it.",
        "processed_rows_per_second",
    ),
)


_GATEWAY: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (GaugeMetricFamily, names.GATEWAY_UP, "1 while the gateway serves.", "up"),
    (GaugeMetricFamily, names.GATEWAY_CONNECTIONS, "Kafka clients that are connected.", "connections"),
    (CounterMetricFamily, names.GATEWAY_CONNECTIONS_OPENED, "Connections accepted.", "connections_total"),
    (
        CounterMetricFamily,
        names.GATEWAY_CONNECTIONS_REFUSED,
        "Connections closed at once, because there were too many.",
        "refused_connections_total",
    ),
    (CounterMetricFamily, names.GATEWAY_DENIED, "Requests that their principal may not make.", "denied_total"),
    (
        GaugeMetricFamily,
        names.GATEWAY_ACL_ROWS_NOT_UNDERSTOOD,
        "Rows of kafka.acls that somebody has damaged with SQL.",
        "acl_rows_not_understood",
    ),
    (
        GaugeMetricFamily,
        names.GATEWAY_QUOTA_ROWS_NOT_UNDERSTOOD,
        "Rows of kafka.quotas that somebody has damaged with SQL.",
        "quota_rows_not_understood",
    ),
    (CounterMetricFamily, names.GATEWAY_THROTTLED, "Answers that told a client to wait.", "throttled_total"),
    (CounterMetricFamily, names.GATEWAY_THROTTLED_SECONDS, "What they told it to wait.", "throttled_seconds"),
    (CounterMetricFamily, names.GATEWAY_RECEIVED_BYTES, "Bytes from Kafka clients.", "received_bytes"),
    (CounterMetricFamily, names.GATEWAY_SENT_BYTES, "Bytes to Kafka clients.", "sent_bytes"),
    (CounterMetricFamily, names.GATEWAY_RESTARTS, "Times the gateway was started again.", "restarts_total"),
    (
        CounterMetricFamily,
        names.GATEWAY_INBOX_REJECTED,
        "Messages of SQL that could not be appended and were set aside.",
        "inbox_rejected_total",
    ),
)


# As `broker_status` counts them, up to ten thousand of what there may be many of.
_BROKER: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (GaugeMetricFamily, names.BROKER_GROUPS, "Groups.", "groups"),
    (GaugeMetricFamily, names.BROKER_SUBSCRIPTIONS, "Subscriptions that have not expired.", "subscriptions"),
    (GaugeMetricFamily, names.BROKER_PARKED, "Subscriptions that are not matched for now.", "parked"),
    (GaugeMetricFamily, names.BROKER_RESUMING, "Parked subscriptions that catch up.", "resuming"),
    (GaugeMetricFamily, names.BROKER_FAILING, "Subscriptions whose condition has failed.", "failing"),
    (GaugeMetricFamily, names.BROKER_DEAD_LETTERS, "Events that handlers or conditions gave up on.", "dead_letters"),
    (GaugeMetricFamily, names.BROKER_REJECTED, "Scheduled events that could not be dispatched.", "rejected"),
    (GaugeMetricFamily, names.BROKER_SCHEDULED, "Events that are due later.", "scheduled"),
    (GaugeMetricFamily, names.BROKER_OVERRUN, "Groups that lagged too far and have lost events.", "overrun"),
    (GaugeMetricFamily, names.BROKER_CONNECTIONS, "Listeners over SSE.", "connections"),
    (CounterMetricFamily, names.BROKER_RESTARTS, "Times the broker was started again.", "restarts_total"),
    (
        CounterMetricFamily,
        names.BROKER_WEBHOOK_EVENTS_DELIVERED,
        "Events that webhooks have taken.",
        "webhook_events_delivered_total",
    ),
    (
        CounterMetricFamily,
        names.BROKER_WEBHOOK_EVENTS_RETRIED,
        "Events that webhooks are sent again.",
        "webhook_events_retried_total",
    ),
    (
        CounterMetricFamily,
        names.BROKER_WEBHOOK_EVENTS_BURIED,
        "Events that webhooks did not take, now dead letters.",
        "webhook_events_buried_total",
    ),
)


_REGISTRY: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (GaugeMetricFamily, names.REGISTRY_SUBJECTS, "Subjects that are not deleted.", "subjects"),
    (GaugeMetricFamily, names.REGISTRY_SCHEMAS, "Schemas, each counted once.", "schemas"),
    (GaugeMetricFamily, names.REGISTRY_CONNECTIONS, "Clients that are connected.", "connections"),
    (CounterMetricFamily, names.REGISTRY_ANSWERED, "Requests answered.", "requests_answered_total"),
    (CounterMetricFamily, names.REGISTRY_REFUSED, "Requests refused: incompatible, unknown.", "requests_refused_total"),
    (CounterMetricFamily, names.REGISTRY_FAILED, "Requests that failed on our side.", "requests_failed_total"),
    (CounterMetricFamily, names.REGISTRY_RESTARTS, "Times the registry was started again.", "restarts_total"),
)


def _histogram(seconds: Mapping[str, Any]) -> tuple[list[tuple[str, float]], float]:
    """Counts per bucket, as the cumulative ones that Prometheus wants."""
    limits = [*(str(limit) for limit in seconds["limits"]), "+Inf"]
    total, buckets = 0, []
    for limit, count in zip(limits, seconds["counts"], strict=True):
        total += count
        buckets.append((limit, float(total)))
    return buckets, seconds["sum"]


def _timed(told: Mapping[str, Any], key: str, name: str, text: str) -> Iterable[Metric]:
    """The histogram that a server beside the pipelines has told under this key, if it has."""
    if key in told:
        buckets, seconds = _histogram(told[key])
        yield HistogramMetricFamily(name, text, buckets=buckets, sum_value=seconds)


_FETCH = "Time to read what a Fetch request asks for, without its wait for new data."
_DISPATCH = "Time of a poll that dispatched events to subscriptions."


class _Pipelines(Collector):
    def __init__(self, reports: Sequence[Report], snapshots: Sequence[Mapping[str, Any]]) -> None:
        self._reports = reports
        self._snapshots = snapshots

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily(names.BUILD, "What runs.", value={"version": __version__})
        for name, (text, value) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=[names.PIPELINE_LABEL])
            for report in self._reports:
                counter.add_metric([report.pipeline], value(report))
            yield counter
        for name, (text, optional) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=[names.PIPELINE_LABEL])
            for report in self._reports:
                number = optional(report)
                if number is not None:
                    gauge.add_metric([report.pipeline], number)
            yield gauge
        durations = HistogramMetricFamily(
            names.BATCH_DURATION_SECONDS,
            "How long batches took; those that follow their source are not counted.",
            labels=[names.PIPELINE_LABEL],
        )
        for report in self._reports:
            if report.batch_durations:
                durations.add_metric([report.pipeline], *_histogram(report.batch_durations))
        yield durations
        yield self._phases()
        yield self._acknowledgements()
        yield from self._spark()
        yield from self._sources()
        yield from self._mirrors()
        yield from self._routing()
        yield from self._running_snapshots()
        yield self._health()

    def _phases(self) -> Metric:
        family = HistogramMetricFamily(
            names.BATCH_PHASE_SECONDS,
            "How long each phase of a batch took: send, record, commit.",
            labels=[names.PIPELINE_LABEL, names.PHASE_LABEL],
        )
        for report in self._reports:
            for phase, seconds in report.phase_durations.items():
                family.add_metric([report.pipeline, phase], *_histogram(seconds))
        return family

    def _acknowledgements(self) -> Metric:
        family = HistogramMetricFamily(
            names.COMMIT_TO_ACK_SECONDS,
            "From the commit of the oldest change of a batch or step to the destination's acknowledgement.",
            labels=[names.PIPELINE_LABEL],
        )
        for report in self._reports:
            if report.commit_to_ack:
                family.add_metric([report.pipeline], *_histogram(report.commit_to_ack))
        return family

    def _spark(self) -> Iterable[Metric]:
        """What Spark reports of its queries, by its listener."""
        reported = [report for report in self._reports if report.spark]
        for kind, name, text, key in _SPARK:
            family = kind(name, text, labels=[names.PIPELINE_LABEL])
            for report in reported:
                if report.spark[key] is not None:
                    family.add_metric([report.pipeline], report.spark[key])
            yield family
        ends = CounterMetricFamily(
            names.SPARK_TERMINATIONS,
            "Ends of the query, by outcome.",
            labels=[names.PIPELINE_LABEL, names.OUTCOME_LABEL],
        )
        parts = HistogramMetricFamily(
            names.SPARK_BATCH_PART_SECONDS,
            "How long each part of a batch took, as Spark has it; the whole and the sending of batches that follow "
            "their source are not counted.",
            labels=[names.PIPELINE_LABEL, names.PART_LABEL],
        )
        for report in reported:
            for outcome, count in report.spark["terminations"].items():
                ends.add_metric([report.pipeline, outcome], count)
            for part, seconds in report.spark["parts"].items():
                parts.add_metric([report.pipeline, part], *_histogram(seconds))
        yield from (ends, parts)

    def _routing(self) -> Iterable[Metric]:
        """Of pipelines whose rows say where they go. No stream or topic is a label: there may be hundreds."""
        routed = [report for report in self._reports if report.routing]
        for kind, name, text, key in _ROUTING:
            family = kind(name, text, labels=[names.PIPELINE_LABEL])
            for report in routed:
                family.add_metric([report.pipeline], report.routing[key])
            yield family
        for name, text, key, label in _ROUTING_BY:
            labelled = CounterMetricFamily(name, text, labels=[names.PIPELINE_LABEL, label])
            for report in routed:
                for value, count in report.routing[key].items():
                    labelled.add_metric([report.pipeline, value], count)
            yield labelled
        latency = HistogramMetricFamily(
            names.DESTINATION_CREATE_SECONDS, "How long creating a destination took.", labels=[names.PIPELINE_LABEL]
        )
        for report in routed:
            latency.add_metric([report.pipeline], *_histogram(report.routing["create_seconds"]))
        yield latency

    def _sources(self) -> Iterable[Metric]:
        for kind, described in ((GaugeMetricFamily, _SOURCE_GAUGES), (CounterMetricFamily, _SOURCE_COUNTERS)):
            for name, (text, key) in described.items():
                family = kind(name, text, labels=[names.PIPELINE_LABEL])
                for report in self._reports:
                    if report.source_details.get(key) is not None:
                        family.add_metric([report.pipeline], report.source_details[key])
                yield family

    def _mirrors(self) -> Iterable[Metric]:
        for name, (text, key) in _SHADOW_GAUGES.items():
            family = GaugeMetricFamily(name, text, labels=[names.PIPELINE_LABEL, names.LINK_LABEL])
            for report in self._reports:
                for link, details in report.destination_details.items():
                    if details.get(key) is not None:
                        family.add_metric([report.pipeline, link], details[key])
            yield family

    def _running_snapshots(self) -> Iterable[Metric]:
        states = GaugeMetricFamily(
            names.SNAPSHOTS, "Remembered snapshots, by state.", labels=[names.PIPELINE_LABEL, names.STATE_LABEL]
        )
        rows = GaugeMetricFamily(
            names.SNAPSHOT_ROWS, "Rows of running snapshots.", labels=[names.PIPELINE_LABEL, names.TABLE_LABEL]
        )
        counts = Counter((each["pipeline"], each["state"]) for each in self._snapshots)
        for (pipeline, state), count in sorted(counts.items()):
            states.add_metric([pipeline, state], count)
        for each in self._snapshots:
            if each["state"] == "running":
                rows.add_metric([each["pipeline"], f"{each['schema']}.{each['table']}"], each["rows"])
        yield from (states, rows)

    def _health(self) -> Metric:
        family = GaugeMetricFamily(
            names.PIPELINE_STATUS,
            "1 for the state the pipeline is in.",
            labels=[names.PIPELINE_LABEL, names.STATUS_LABEL],
        )
        for report in self._reports:
            for status in Status:
                family.add_metric([report.pipeline, status.value], float(report.status is status))
        return family


class _Gateway(Collector):
    """What the process of the gateway has told."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told

    def collect(self) -> Iterable[Metric]:
        told = self._told
        for kind, name, text, key in _GATEWAY:
            if key in told:
                yield kind(name, text, value=told[key])
        requests = CounterMetricFamily(
            names.GATEWAY_REQUESTS,
            "Requests of Kafka clients, by API and error.",
            labels=[names.API_LABEL, names.ERROR_LABEL],
        )
        for api, error, count in told.get("requests", ()):
            requests.add_metric([api, error], count)
        yield requests
        logins = CounterMetricFamily(
            names.GATEWAY_LOGINS,
            "Logins of Kafka clients, by mechanism and outcome.",
            labels=[names.MECHANISM_LABEL, names.OUTCOME_LABEL],
        )
        for mechanism, outcome, count in told.get("logins", ()):
            logins.add_metric([mechanism, outcome], count)
        yield logins
        troubles = GaugeMetricFamily(names.GATEWAY_TROUBLE, "1 while a part does not work.", labels=[names.PART_LABEL])
        failures = CounterMetricFamily(names.GATEWAY_FAILURES, "Failures of a part.", labels=[names.PART_LABEL])
        for part, count in told.get("failures", {}).items():
            failures.add_metric([part], count)
            troubles.add_metric([part], float(part in told["troubles"]))
        yield troubles
        yield failures
        if "append_buckets" in told:
            buckets = [(str(limit), float(count)) for limit, count in _buckets(told["append_buckets"])]
            latency = HistogramMetricFamily(names.GATEWAY_APPEND_SECONDS, "From a Produce request to its commit.")
            latency.add_metric([], buckets, told["append_seconds"])
            yield latency
        yield from _timed(told, "fetch_timings", names.GATEWAY_FETCH_SECONDS, _FETCH)


class _Broker(Collector):
    """What the process of the broker has told."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(names.BROKER_UP, "1 while the broker serves.", value=self._told.get("up", 0))
        for kind, name, text, key in _BROKER:
            if key in self._told:
                yield kind(name, text, value=self._told[key])
        yield from _timed(self._told, "dispatch_timings", names.BROKER_DISPATCH_SECONDS, _DISPATCH)


class _Registry(Collector):
    """What the process of the schema registry has told."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(names.REGISTRY_UP, "1 while the schema registry serves.", value=self._told.get("up", 0))
        for kind, name, text, key in _REGISTRY:
            if key in self._told:
                yield kind(name, text, value=self._told[key])


class _Relay(Collector):
    """What the process of the relay has told: the metrics of its own page, without hosts."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(names.RELAY_UP, "1 while the relay serves.", value=self._told.get("up", 0))
        if "restarts_total" in self._told:
            restarts = self._told["restarts_total"]
            yield CounterMetricFamily(names.RELAY_RESTARTS, "Times the relay was started again.", value=restarts)
        for family in self._told.get("families", ()):
            metric = Metric(family["name"], family["text"], family["type"])
            for name, labels, value in family["samples"]:
                metric.add_sample(name, labels, value)
            yield metric


def _buckets(counts: Sequence[int]) -> Iterable[tuple[float | str, int]]:
    return zip([*LATENCY_BUCKETS_S, "+Inf"], counts, strict=True)


REGISTRY_KEYS = tuple(key for _, _, _, key in _REGISTRY)
GATEWAY_KEYS = tuple(key for _, _, _, key in _GATEWAY)
BROKER_KEYS = tuple(key for _, _, _, key in _BROKER)


def collectors(
    reports: Sequence[Report],
    snapshots: Sequence[Mapping[str, Any]] = (),
    gateway: Mapping[str, Any] | None = None,
    broker: Mapping[str, Any] | None = None,
    relay: Mapping[str, Any] | None = None,
    registry: Mapping[str, Any] | None = None,
) -> list[Collector]:
    """Return the collectors of the metrics: of the pipelines, then of each server that runs beside them."""
    beside: list[tuple[Callable[[Mapping[str, Any]], Collector], Mapping[str, Any] | None]] = [
        (_Gateway, gateway),
        (_Broker, broker),
        (_Relay, relay),
        (_Registry, registry),
    ]
    return [_Pipelines(reports, snapshots), *(kind(told) for kind, told in beside if told is not None)]


def render(
    reports: Sequence[Report],
    snapshots: Sequence[Mapping[str, Any]] = (),
    gateway: Mapping[str, Any] | None = None,
    broker: Mapping[str, Any] | None = None,
    relay: Mapping[str, Any] | None = None,
    registry: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the metrics page, in the text format of Prometheus."""
    collected = CollectorRegistry()
    ProcessCollector(registry=collected)
    for collector in collectors(reports, snapshots, gateway, broker, relay, registry):
        collected.register(collector)
    return generate_latest(collected)
