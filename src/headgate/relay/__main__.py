"""A relay as a child process."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import uvloop

from headgate.relay.latest import latest_events
from headgate.relay.metrics import counters, families
from headgate.relay.overview import Overview
from headgate.relay.service import Relay, RelaySettings, serve_relay
from headgate.runtime.child import ready, run_child, until_closed
from headgate.runtime.ending import end


def _ready(relay: Relay, overview: Overview) -> None:
    def metrics() -> dict[str, Any]:
        listeners = relay.front.fanout.stats()
        counted = counters(relay.parts, listeners)
        latest = latest_events(relay.parts.reader)
        return {
            "connections": listeners["listeners"],
            **counted,
            "latest": latest,
            "overview": overview.as_dict(),
            "families": families(relay.parts, relay.front.listeners(), counted["hosts"]),
        }

    ready(metrics, port=int(relay.url.rpartition(":")[2]), url=relay.url, recovered=relay.recovered)


async def _serve(settings: RelaySettings) -> None:
    stop = asyncio.Event()
    until_closed(stop)
    reading: list[asyncio.Task[None]] = []

    def tell(relay: Relay) -> None:
        overview = Overview(relay.parts, relay.front.consumers)
        reading.append(asyncio.create_task(overview.keep_reading()))
        _ready(relay, overview)

    try:
        await serve_relay(settings, tell, stop)
    finally:
        await end(*reading)


def _work(line: bytes) -> None:
    settings = msgspec.json.decode(line, type=RelaySettings, dec_hook=lambda kind, value: kind(value))
    uvloop.run(_serve(settings))


if __name__ == "__main__":
    run_child(_work)
