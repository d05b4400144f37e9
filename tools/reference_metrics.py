"""The page of metrics: what the control plane and the relay export."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric

from headgate.control.metrics import BROKER_KEYS, GATEWAY_KEYS, REGISTRY_KEYS, collectors
from headgate.gateway.metrics import Metrics
from headgate.relay.metrics import RelayCollector
from headgate.relay.service import RelaySettings, open_relay
from headgate.runtime.timings import Timings
from tools.tables import code, page, table

__all__ = ["metrics_page"]

_INTRODUCTION = """
`GET /metrics` of the control plane has the metrics of pipelines, and, where they run beside them, those of the gateway,
the broker, the schema registry and the relay; a relay also has its own page, with the counts of hosts. Both have the
usual `process_*` ones. Counters end in `_total`, as Prometheus wants it. [Deployment](../deployment.md#watch) says what
to alert on.
"""
_RELAY = """
What a relay serves at its own `/metrics`. Beside pipelines the control plane has them, too, without those of single
hosts, and with `headgate_relay_up` and `headgate_relay_restarts_total`.
""".strip()


def metrics_page() -> str:
    """Return the page of every metric."""
    broker_told = dict.fromkeys(BROKER_KEYS, 0) | {"dispatch_timings": Timings().as_dict()}
    pipelines, gateway, broker, registry = collectors(
        [], [], _gateway(), broker_told, registry=dict.fromkeys(REGISTRY_KEYS, 0)
    )
    parts = [
        f"## Pipelines\n\n{_table(pipelines.collect())}",
        f"## Gateway\n\n{_table(gateway.collect())}",
        f"## Broker\n\n{_table(broker.collect())}",
        f"## Schema registry\n\n{_table(registry.collect())}",
        f"## Relay\n\n{_RELAY}\n\n{_table(asyncio.run(_relay()))}",
    ]
    return page("Metrics reference", "what is exported", _INTRODUCTION, *parts)


def _gateway() -> dict[str, object]:
    """What a gateway tells that has not been asked yet."""
    return dict.fromkeys(GATEWAY_KEYS, 0) | Metrics().as_dict() | {"fetch_timings": Timings().as_dict()}


async def _relay() -> list[Metric]:
    """The metrics of a relay that follows nobody."""
    with tempfile.TemporaryDirectory() as directory:
        async with open_relay(RelaySettings(Path(directory), port=0)) as relay:
            return list(RelayCollector(relay.parts, relay.front.listeners()).collect())


def _table(families: Iterable[Metric]) -> str:
    return table(["metric", "type", "labels", "meaning"], [_row(family) for family in families])


def _row(family: Metric) -> list[str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels: tuple[str, ...] = getattr(family, "_labelnames", ())
    return [code(name), family.type, ", ".join(map(code, labels)), family.documentation]
