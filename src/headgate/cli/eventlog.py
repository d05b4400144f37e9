"""`headgate eventlog`: a log of events in files. Serve it, look at it, check and repair it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.destinations import EventLogDestinationSection
from headgate.control.logs import configure_logs
from headgate.eventlog import LogReader
from headgate.eventlog.check import LogReport, check_log, repair_log
from headgate.eventlog.serve import ServeOptions
from headgate.eventlog.serve import serve as serve_log
from headgate.model import UsageError
from headgate.runtime.access import is_loopback

__all__ = ["eventlog"]

eventlog = typer.Typer(help="A log of events in files: serve it over WebSocket and HTTP.", no_args_is_help=True)

NameArgument = Annotated[str | None, typer.Argument(help="A destination of this type.", show_default="the only one")]
PathOption = Annotated[Path | None, typer.Option("--path", help="The log's directory, in place of a destination's.")]


@eventlog.command()
def serve(
    name: NameArgument = None,
    config: ConfigOption = None,
    path: PathOption = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0 picks a free one.", show_default="8740")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="HEADGATE_EVENTLOG_TOKEN", help="Token of requests; needed off loopback."),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=64, help="Processes that share the port.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Serve a log to whoever listens, until Ctrl-C. The pipeline that writes it need not run, and is not slowed down.

    \b
    Try it:
      headgate eventlog serve
      curl -N 'http://127.0.0.1:8740/events?topic=orders&cursor=0'
    """
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    section, found = _log_of(loaded, name, path)
    own = section.token.get_secret_value() if section.token else None
    options = ServeOptions(
        path=str(found),
        host=host or section.host,
        port=section.port if port is None else port,
        token=token or own,
        processes=processes,
        connections=section.max_connections,
    )
    if not is_loopback(options.host) and options.token is None:
        raise UsageError(f"{options.host} is not loopback, so a token is required", remedy="give --token")
    configure_logs(loaded.logging.level, loaded.logging.format)
    serve_log(options, ready=lambda url: _show(url, as_json))
    note("stopped; the events stay")


@eventlog.command()
def show(
    name: NameArgument = None, config: ConfigOption = None, path: PathOption = None, as_json: JsonOption = False
) -> None:
    """Say what a log holds: its oldest and its last number, and its size."""
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    _, found = _log_of(loaded, name, path)
    with LogReader(found) as reader:
        starts = reader.files.starts()
        told = {
            "path": str(found),
            "oldest": reader.oldest_seq,
            "last": reader.head_seq,
            "segments": len(starts),
            "bytes": sum(reader.files.segment(start).stat().st_size for start in starts),
        }
    if as_json:
        print_json(told)
        return
    for key, value in told.items():
        data_console.print(f"{key}: {value}", markup=False)


@eventlog.command()
def check(
    name: NameArgument = None, config: ConfigOption = None, path: PathOption = None, as_json: JsonOption = False
) -> None:
    """Read every record of a log and compare it with its checksum. Exits with 1 if something is damaged or missing.

    The log may be written and served meanwhile. That of a relay is `log` in its data directory.

    \b
    Try it:
      headgate eventlog check --path .headgate/relay/log
    """
    found = _checked_path(name, config, path)
    _report(check_log(found), as_json, remedy=f"headgate eventlog repair --path {found}")


@eventlog.command()
def repair(
    name: NameArgument = None, config: ConfigOption = None, path: PathOption = None, as_json: JsonOption = False
) -> None:
    """Save what can be saved of a damaged log: every sound record, under its number, and a word about what is lost.

    Stop whoever writes it first. A file that is changed is kept beside it, as `damaged-evts-N`.
    """
    report = repair_log(_checked_path(name, config, path))
    _report(report, as_json, remedy="")
    if not as_json:
        note("mended; whoever replays past what is lost is told of it" if report.damage else "there is nothing to mend")


def _checked_path(name: str | None, config: Path | None, path: Path | None) -> Path:
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    return _log_of(loaded, name, path)[1]


def _report(report: LogReport, as_json: bool, remedy: str) -> None:
    told = asdict(report) | {"damage": [damage._asdict() for damage in report.damage]}
    if as_json:
        print_json(told)
    else:
        for key in ("segments", "records", "unchecked", "taken_down", "bytes"):
            data_console.print(f"{key}: {told[key]}", markup=False)
        for damage in report.damage:
            place = f"{damage.path}, offset {damage.offset} to {damage.end}"
            data_console.print(f"damaged: {place}: {damage.text}", markup=False, soft_wrap=True)
    if report.damage and remedy:
        if not as_json:
            note(f"save the rest with: {remedy}")
        raise typer.Exit(1)


def _log_of(config: Config, name: str | None, path: Path | None) -> tuple[EventLogDestinationSection, Path]:
    if path is not None:
        return EventLogDestinationSection(type="eventlog"), path
    sections = {
        key: section for key, section in config.destinations.items() if isinstance(section, EventLogDestinationSection)
    }
    names = [name] if name else list(sections)
    if len(names) != 1 or names[0] not in sections:
        known = ", ".join(sections) or "none"
        raise UsageError(
            "which event log?", remedy=f"give --path, or a destination of type eventlog (there is: {known})"
        )
    section = sections[names[0]]
    return section, section.directory(names[0], config.project.data_dir)


def _show(url: str, as_json: bool) -> None:
    if as_json:
        print_json({"url": url})
        return
    data_console.print(url, markup=False)
    note(f"listen:  curl -N '{url}/events?cursor=0'")
    note(f"or:      {url.replace('http', 'ws', 1)}/subscribe?topic=orders&cursor=0")
    note("Ctrl-C stops it")
