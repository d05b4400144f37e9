"""`headgate demo`: the whole of headgate, running, with nothing to install or configure."""

from __future__ import annotations

import os
import time
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
from headgate.control.watch import StreamWatch
from headgate.destinations.nats import NatsOptions
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
    service = Service(config, progress=note)
    with stop_on_signals(service):
        try:
            service.start()
            with StreamWatch(_stream(config, service)) as watch:
                _show(service, watch, seconds)
                watch.poll()
        finally:
            note("stopping")
            service.stop()
    error = service.first_error()
    if error is not None:
        raise error
    if watch.first_arrival is None:
        raise DeliveryError("no event arrived at NATS", remedy=f"read the logs in {config.project.data_dir / 'logs'}")
    first_s = watch.first_arrival - began
    if as_json:
        print_json({"arrived": watch.arrived, "first_event_seconds": round(first_s, 2)})
    else:
        note(f"{watch.arrived:,} events arrived at NATS, the first one {first_s:.1f} s after the start")


def _config(data_dir: Path) -> Config:
    text = resources.files("headgate.cli").joinpath("demo.toml").read_text(encoding="utf-8")
    return parse(text, environ={**os.environ, "HEADGATE_DEMO_DIR": str(data_dir.resolve())})


def _stream(config: Config, service: Service) -> NatsOptions:
    section = config.destinations["events"]
    assert isinstance(section, NatsDestinationSection)
    assert service.endpoints is not None
    return nats_options(section, config.nats, service.endpoints.nats_url)


def _show(service: Service, watch: StreamWatch, seconds: float) -> None:
    """Show what happens until the time is over, a stop is asked for, or every pipeline has ended."""
    if note_console.is_terminal:
        with Live(demo_view(service, watch), console=note_console, auto_refresh=False) as live:
            while not service.wait(_REFRESH_S) and not _over(watch, seconds):
                watch.poll()
                live.update(demo_view(service, watch), refresh=True)
        return
    next_line = 0.0
    while not service.wait(_REFRESH_S) and not _over(watch, seconds):
        watch.poll()
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + _LINE_EVERY_S
            note(demo_line(service, watch))


def _over(watch: StreamWatch, seconds: float) -> bool:
    """The clock runs from the first event, so that a slow machine sees as much; it waits for it only so long."""
    if not seconds:
        return False
    if watch.first_arrival is None:
        return time.monotonic() - watch.began > _FIRST_EVENT_S
    return time.monotonic() - watch.first_arrival >= seconds
