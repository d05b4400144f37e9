"""Every metric headgate exports, in Prometheus form. Names, labels and meanings stand here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate import __version__
from headgate.model import Status
from headgate.pipeline.report import Report

__all__ = ["CONTENT_TYPE", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: dict[str, tuple[str, Callable[[Report], float]]] = {
    "headgate_rows": ("Rows delivered and acknowledged.", lambda r: r.rows_total),
    "headgate_payload_bytes": ("Payload bytes delivered.", lambda r: r.bytes_total),
    "headgate_duplicates": ("Rows a destination had already.", lambda r: r.duplicates_total),
    "headgate_batches": ("Batches delivered.", lambda r: r.batches_total),
    "headgate_restarts": ("Times the query was started again.", lambda r: r.restarts_total),
    "headgate_errors": ("Failures that ended a run of the query.", lambda r: r.errors_total),
}

_GAUGES: dict[str, tuple[str, Callable[[Report], float | None]]] = {
    "headgate_rows_per_second": ("Rows delivered per second, over ten seconds.", lambda r: r.rows_per_second),
    "headgate_lag_rows": ("Rows at the source that are not delivered yet.", lambda r: r.lag_rows),
    "headgate_batch_seconds": ("Duration of the last batch.", lambda r: r.last_batch_seconds),
    "headgate_last_delivery_timestamp_seconds": ("When a row was last delivered.", lambda r: r.last_delivery),
}


class _Pipelines(Collector):
    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("headgate_build_info", f"Version {__version__}.", value=1)
        for name, (text, value) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["pipeline"])
            for report in self._reports:
                counter.add_metric([report.pipeline], value(report))
            yield counter
        for name, (text, optional) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["pipeline"])
            for report in self._reports:
                number = optional(report)
                if number is not None:
                    gauge.add_metric([report.pipeline], number)
            yield gauge
        yield self._health()

    def _health(self) -> Metric:
        family = GaugeMetricFamily(
            "headgate_pipeline_status", "1 for the state the pipeline is in.", labels=["pipeline", "status"]
        )
        for report in self._reports:
            for status in Status:
                family.add_metric([report.pipeline, status.value], float(report.status is status))
        return family


def render(reports: Sequence[Report]) -> bytes:
    """The metrics page."""
    registry = CollectorRegistry()
    registry.register(_Pipelines(reports))
    return generate_latest(registry)
