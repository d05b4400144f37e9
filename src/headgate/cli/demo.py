"""`headgate demo`: the whole of headgate, running, with nothing to install or configure."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from headgate.cli.demo_view import demo_line, demo_view
from headgate.cli.output import JsonOption, note, note_console, print_json
from headgate.cli.run import stop_on_signals
from headgate.config import Config, parse
from headgate.config.models import NatsDestinationSection
from headgate.control import Service
from headgate.control.logs import configure_logs
from headgate.control.shop import Shop
from headgate.control.watch import StreamWatch
from headgate.destinations.nats import NatsOptions
from headgate.embedded import Endpoints
from headgate.model import DeliveryError
from headgate.pipeline.assemble import nats_options

__all__ = ["demo"]

_REFRESH_S = 0.5
_LINE_EVERY_S = 5.0
_FIRST_EVENT_S = 120.0


def demo(
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0, help="End so long after the first event; 0 runs until Ctrl-C."),
    ] = 0,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", envvar="HEADGATE_DEMO_DIR", help="Where the demo keeps its data.")
    ] = Path(".headgate/demo"),
    as_json: JsonOption = False,
) -> None:
    """See events flow: starts embedded PostgreSQL, NATS and Spark, a pipeline, and a live view.

    Ctrl-C ends everything. With --seconds it ends by itself, and exits with 0 only if events arrived at NATS.
    """
    began = time.monotonic()
    config = _config(data_dir)
    configure_logs(config.logging.level, config.logging.format)
    with ExitStack() as opened:

        def open_shop(endpoints: Endpoints) -> None:
            assert endpoints.postgres_url is not None
            shop = Shop(endpoints.postgres_url)
            shop.open()
            opened.callback(shop.close)

        service = Service(config, progress=note, prepare=open_shop)
        opened.enter_context(stop_on_signals(service))
        opened.callback(service.stop)
        service.start()
        watches = [opened.enter_context(StreamWatch(options)) for options in _streams(config, service)]
        _show(service, watches, seconds)
        note("stopping")
    error = service.first_error()
    if error is not None:
        raise error
    _tell(watches, began, as_json, config)


def _tell(watches: list[StreamWatch], began: float, as_json: bool, config: Config) -> None:
    """What arrived; nothing at one of the streams is a failure."""
    for watch in watches:
        if watch.first_arrival is None:
            raise DeliveryError(
                f"no event arrived at the stream {watch.stream}",
                remedy=f"read the logs in {config.project.data_dir / 'logs'}",
            )
    first_s = min(watch.first_arrival or 0 for watch in watches) - began
    if as_json:
        arrived = {watch.stream: watch.arrived for watch in watches}
        print_json({"arrived": arrived, "first_event_seconds": round(first_s, 2)})
        return
    for watch in watches:
        note(f"{watch.arrived:,} events arrived at the NATS stream {watch.stream}")
    note(f"the first one {first_s:.1f} s after the start")


def _config(data_dir: Path) -> Config:
    text = resources.files("headgate.cli").joinpath("demo.toml").read_text(encoding="utf-8")
    return parse(text, environ={**os.environ, "HEADGATE_DEMO_DIR": str(data_dir.resolve())})


def _streams(config: Config, service: Service) -> list[NatsOptions]:
    assert service.endpoints is not None
    return [
        nats_options(section, config.nats, service.endpoints.nats_url)
        for section in config.destinations.values()
        if isinstance(section, NatsDestinationSection)
    ]


def _show(service: Service, watches: list[StreamWatch], seconds: float) -> None:
    """Show what happens until the time is over, a stop is asked for, or every pipeline has ended."""
    with ExitStack() as opened:
        live: Live | None = None
        if note_console.is_terminal:
            live = Live(demo_view(service, watches), console=note_console, auto_refresh=False)
            opened.enter_context(live)
        next_line = 0.0
        while not service.wait(_REFRESH_S) and not _over(watches, seconds):
            for watch in watches:
                watch.poll()
            if live is not None:
                live.update(demo_view(service, watches), refresh=True)
            elif time.monotonic() >= next_line:
                next_line = time.monotonic() + _LINE_EVERY_S
                note(demo_line(service, watches))


def _over(watches: list[StreamWatch], seconds: float) -> bool:
    """The clock runs from the first events, so that a slow machine sees as much; it waits for them only so long."""
    if not seconds:
        return False
    arrivals = [watch.first_arrival for watch in watches]
    if None in arrivals:
        return time.monotonic() - watches[0].began > _FIRST_EVENT_S
    return time.monotonic() - max(arrival for arrival in arrivals if arrival) >= seconds
