"""`headgate demo`: the whole of headgate, running, with nothing to install or configure."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from headgate.cli.output import JsonOption, note, note_console, print_json
from headgate.cli.run import stop_on_signals
from headgate.config import Config, parse
from headgate.config.destinations import NatsDestinationSection
from headgate.config.sources import PostgresCdcSourceSection
from headgate.control import Service
from headgate.control.logs import configure_logs
from headgate.demo.broker import DemoBroker
from headgate.demo.firehose import DemoNetwork
from headgate.demo.log import DemoLog, choose_port, prepare_log
from headgate.demo.replica import DemoReplica
from headgate.demo.shop import Shop
from headgate.demo.view import demo_line, demo_view
from headgate.demo.watch import StreamWatch
from headgate.destinations.nats import NatsOptions
from headgate.destinations.nats.build import nats_options
from headgate.embedded import Endpoints
from headgate.model import DeliveryError, HeadgateError

__all__ = ["demo"]

_REFRESH_S = 0.5
_LINE_EVERY_S = 5.0
_FIRST_EVENT_S = 900.0  # a machine that is busy with other things may take minutes; one that failed is told at once
_VERDICT_S = 30.0


def demo(
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0, help="End so long after the first event; 0 runs until Ctrl-C."),
    ] = 0,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", envvar="HEADGATE_DEMO_DIR", help="Where the demo keeps its data.")
    ] = Path(".headgate/demo"),
    network: Annotated[
        bool, typer.Option("--network", help="Also an AT Protocol network, simulated, and a relay that follows it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """See events flow: embedded PostgreSQL, NATS and Spark, pipelines, gateway, broker, replica, a live view.

    Ctrl-C ends everything. With --seconds it ends by itself, and exits with 0 only if events arrived everywhere.
    """
    began = time.monotonic()
    with ExitStack() as opened:
        more = opened.enter_context(DemoNetwork()).toml if network else ""
        config = _config(data_dir, more)
        configure_logs(config.logging.level, config.logging.format)

        service = Service(config, progress=note, prepare=partial(_open_shop, opened))
        opened.enter_context(stop_on_signals(service))
        opened.callback(service.stop)
        service.start()
        watches = [opened.enter_context(StreamWatch(options)) for options in _streams(config, service)]
        log = opened.enter_context(_log(service))
        replica = opened.enter_context(_replica(config, service))
        broker = opened.enter_context(_broker(service))
        _show(service, watches, log, broker, replica, seconds)
        relay = service.status()["relay"]
        trouble = None if all(watch.first_arrival for watch in watches) else _trouble(service)
        if seconds:
            replica.await_verdict(_VERDICT_S)
        note("stopping")
    error = service.first_error() or trouble
    if error is not None:
        raise error
    if relay and not relay["counters"].get("accepted"):
        raise DeliveryError("no event came through the relay", remedy=f"read the logs in {config.project.data_dir}")
    _judge(watches, log, broker, replica, config)
    _tell(watches, log, broker, replica, began, as_json)


def _open_shop(opened: ExitStack, endpoints: Endpoints) -> None:
    assert endpoints.postgres_url is not None
    prepare_log(endpoints.postgres_url)
    shop = Shop(endpoints.postgres_url)
    shop.open()
    opened.callback(shop.close)


def _trouble(service: Service) -> HeadgateError | None:
    """What keeps a pipeline from delivering, where nothing has arrived."""
    errors = [report.error for report in service.reports() if report.error]
    return HeadgateError.from_dict(errors[0]) if errors else None


def _judge(watches: list[StreamWatch], log: DemoLog, broker: DemoBroker, replica: DemoReplica, config: Config) -> None:
    """Nothing at one of the streams, in the log or from the broker is a failure, and so is a copy that is not exact."""
    remedy = f"read the logs in {config.project.data_dir / 'logs'}"
    for watch in watches:
        if watch.first_arrival is None:
            raise DeliveryError(f"no event arrived at the stream {watch.stream}", remedy=remedy)
    if log.first_arrival is None:
        raise DeliveryError("no event arrived in the log", remedy=remedy)
    if broker.first_arrival is None:
        raise DeliveryError("no event came from the broker", remedy=remedy)
    if replica.exact is False:
        raise DeliveryError(f"the replica: {replica.state}", remedy=remedy)


def _tell(
    watches: list[StreamWatch], log: DemoLog, broker: DemoBroker, replica: DemoReplica, began: float, as_json: bool
) -> None:
    """What arrived."""
    firsts_s = {watch.stream: round((watch.first_arrival or 0) - began, 2) for watch in watches}
    first_s = min(firsts_s.values())
    if as_json:
        arrived = {watch.stream: watch.arrived for watch in watches}
        copy = {"exact": replica.exact, "rows": replica.rows, "path": str(replica.path)}
        kept = {"bootstrap": log.bootstrap, "arrived": log.arrived}
        orders = {"url": broker.url, "handled": broker.handled}
        first = {"first_event_seconds": first_s, "first_seconds": firsts_s}
        print_json({"arrived": arrived, **first, "log": kept, "broker": orders, "replica": copy})
        return
    for watch in watches:
        note(f"{watch.arrived:,} events arrived at the NATS stream {watch.stream}")
    note(f"{log.arrived:,} messages in the log for Kafka clients")
    note(f"{broker.handled:,} orders handled by a subscriber of the broker")
    note(f"the first one {first_s:.1f} s after the start")
    note(f"replica in {replica.path}: {replica.state}")


def _config(data_dir: Path, more: str = "") -> Config:
    text = resources.files("headgate.demo").joinpath("demo.toml").read_text(encoding="utf-8")
    own = {"HEADGATE_DEMO_DIR": str(data_dir.resolve()), "HEADGATE_DEMO_KAFKA_PORT": str(choose_port())}
    return parse(text + more, environ={**os.environ, **own})


def _streams(config: Config, service: Service) -> list[NatsOptions]:
    assert service.endpoints is not None
    return [
        nats_options(section, config.nats, service.endpoints.nats_url)
        for section in config.destinations.values()
        if isinstance(section, NatsDestinationSection)
    ]


def _log(service: Service) -> DemoLog:
    assert service.endpoints is not None
    return DemoLog(service.endpoints.postgres_url or "", service.status()["gateway"])


def _broker(service: Service) -> DemoBroker:
    assert service.endpoints is not None
    return DemoBroker(service.endpoints.postgres_url or "", service.status()["broker"])


def _replica(config: Config, service: Service) -> DemoReplica:
    endpoints = service.endpoints
    assert endpoints is not None
    changes, shop = config.destinations["changes"], config.sources["shop"]
    assert isinstance(changes, NatsDestinationSection)
    assert isinstance(shop, PostgresCdcSourceSection)
    urls = endpoints.nats_url or "", endpoints.postgres_url or ""
    return DemoReplica(config.project.data_dir, *urls, changes.stream, shop.slot)


def _show(
    service: Service,
    watches: list[StreamWatch],
    log: DemoLog,
    broker: DemoBroker,
    replica: DemoReplica,
    seconds: float,
) -> None:
    """Show what happens until the time is over, a stop is asked for, or every pipeline has ended."""
    began = time.monotonic()
    watched: list[StreamWatch | DemoLog | DemoBroker] = [*watches, log, broker]
    with ExitStack() as opened:
        live: Live | None = None
        if note_console.is_terminal:
            live = Live(demo_view(service, watches, log, broker, replica), console=note_console, auto_refresh=False)
            opened.enter_context(live)
        else:
            note(f"dashboard: {service.url}")
            note(f"try:  {log.kcat_command}")
            note(f"      {log.sql_command}")
            note(f"      {broker.curl_command}")
        next_line = 0.0
        while not service.wait(_REFRESH_S) and not _over(watched, seconds, began):
            for each in watched:
                each.poll()
            if live is not None:
                live.update(demo_view(service, watches, log, broker, replica), refresh=True)
            elif time.monotonic() >= next_line:
                next_line = time.monotonic() + _LINE_EVERY_S
                note(demo_line(service, watches, log, broker, replica))


def _over(watched: Sequence[StreamWatch | DemoLog | DemoBroker], seconds: float, began: float) -> bool:
    """The clock runs from the first events, so that a slow machine sees as much; it waits for them only so long."""
    if not seconds:
        return False
    arrivals = [each.first_arrival for each in watched]
    if None in arrivals:
        return time.monotonic() - began > _FIRST_EVENT_S
    return time.monotonic() - max(arrival for arrival in arrivals if arrival) >= seconds
