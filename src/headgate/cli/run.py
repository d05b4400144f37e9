"""`headgate run`: runs the configured pipelines until told to stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from headgate.cli.output import ConfigOption, note
from headgate.config import Config, load
from headgate.control import Service
from headgate.control.logs import configure_logs
from headgate.control.tracing import exported_traces

__all__ = ["run", "run_service", "stop_on_signals"]


def run(
    config: ConfigOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Deliver what is there now, then stop (Spark's AvailableNow).")
    ] = False,
) -> None:
    """Run every enabled pipeline until Ctrl-C, SIGTERM or POST /shutdown.

    A stop finishes the running batch, records it, and ends. After a crash, starting again loses nothing.
    SIGHUP or POST /reload reads the routes, mappings and lists of the file again.
    """
    run_service(load(config), once=once, reread=lambda: load(config))


def run_service(config: Config, *, once: bool, reread: Callable[[], Config] | None = None) -> None:
    """Run until a stop is asked for or every pipeline has ended, and say what was done."""
    configure_logs(config.logging.level, config.logging.format)
    service = Service(config, until_caught_up=once, reread=reread)
    with exported_traces(), stop_on_signals(service):
        try:
            service.start()
            service.wait()
        finally:
            service.stop()
    error = service.first_error()
    if error is not None:
        raise error
    for report in service.reports():
        note(f"{report.pipeline}: {report.rows_total:,} rows in {report.batches_total:,} batches delivered")


@contextmanager
def stop_on_signals(service: Service) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal ask for a clean stop; a second signal during the stop ends at once.

    Without a terminal, SIGHUP asks for a reload.
    """

    def ask(number: int, _frame: FrameType | None) -> None:
        service.request_stop()
        signal.signal(number, signal.default_int_handler)

    def reload(_number: int, _frame: FrameType | None) -> None:
        service.request_reload()

    saved = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    saved[signal.SIGHUP] = signal.signal(signal.SIGHUP, ask if sys.stdin and sys.stdin.isatty() else reload)
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
