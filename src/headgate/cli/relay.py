"""`headgate relay`: a relay of the AT Protocol, and a network on this machine to try it with."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
import uvloop
from pydantic import ValidationError
from rich.live import Live
from rich.table import Table

from headgate.cli.output import ConfigOption, JsonOption, data_console, note, note_console, print_fields, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.relay import RelaySection
from headgate.control.logs import configure_logs
from headgate.demo.network.rehearsal import Progress, Rehearsal, rehearse
from headgate.eventlog.fanout import FanOutOptions
from headgate.model import ConnectError, DeliveryError, UsageError
from headgate.relay.configured import settings_from
from headgate.relay.dictionary import DICTIONARY, train_dictionary
from headgate.relay.service import Relay, RelaySettings, serve_relay
from headgate.relay.streams import open_streams
from headgate.runtime.ending import stopped_by_signals

__all__ = ["relay"]

relay = typer.Typer(help="A relay of the AT Protocol: run it, or simulate a network for it.", no_args_is_help=True)


DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Log, store and index.", show_default=".headgate/relay")
]
HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")]
PortOption = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="0 picks a free one.", show_default="2470")
]
CrawlOption = Annotated[list[str] | None, typer.Option("--crawl", help="A host to follow; repeatable.")]
BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap", metavar="URL", help="Follow the hosts that this relay lists, too.")
]
TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="DOMAIN",
        help="Hosts in this domain are trusted, beside those of the file; repeatable.",
        show_default="*.host.bsky.network",
    ),
]
PlcUrlOption = Annotated[
    str | None, typer.Option("--plc-url", help="The directory of did:plc.", show_default="https://plc.directory")
]
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", help="strict, or lenient: hosts of before Sync 1.1, too.", show_default="strict"),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=0, help="Processes that validate.", show_default="0")
]
StoreOption = Annotated[
    str | None, typer.Option("--store", envvar="HEADGATE_RELAY_STORE", help="postgresql://...; else SQLite.")
]
RetentionOption = Annotated[
    str | None, typer.Option("--retention", help="How long events are kept.", show_default="72h")
]
InitialSeqOption = Annotated[
    int | None,
    typer.Option("--initial-seq", min=1, help="No event gets a lower number: to take the place of another relay."),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="HEADGATE_RELAY_TOKEN", help="Token that operators' requests must carry."),
]
BacklogOption = Annotated[bool | None, typer.Option("--backlog", help="Follow new hosts from their oldest event on.")]
AllowPrivateOption = Annotated[
    bool | None, typer.Option("--allow-private", help="Hosts on private addresses, without TLS: for trying.")
]


@relay.command()
def run(
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    crawl: CrawlOption = None,
    bootstrap: BootstrapOption = None,
    trust: TrustOption = None,
    plc_url: PlcUrlOption = None,
    policy: PolicyOption = None,
    workers: WorkersOption = None,
    store: StoreOption = None,
    retention: RetentionOption = None,
    initial_seq: InitialSeqOption = None,
    token: TokenOption = None,
    backlog: BacklogOption = None,
    allow_private: AllowPrivateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow hosts, check every event, and serve what is sound as one stream, until Ctrl-C.

    The table `relay` of the configuration has the rest.

    \b
    Try it:
      headgate relay run --bootstrap https://relay.example
      curl http://127.0.0.1:2470/xrpc/com.atproto.sync.listHosts
      websocat 'ws://127.0.0.1:2470/subscribe?wantedCollections=app.bsky.feed.post'
    """
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    section = _overridden(
        loaded.relay,
        data_dir=data_dir,
        host=host,
        port=port,
        crawl=crawl,
        bootstrap=bootstrap,
        trusted_domains=(*loaded.relay.trusted_domains, *trust) if trust else None,
        plc_url=plc_url,
        policy=policy,
        workers=workers,
        store=store,
        retention=retention,
        initial_seq=initial_seq,
        token=token,
        backlog=backlog,
        allow_private=allow_private,
    )
    configure_logs(loaded.logging.level, loaded.logging.format)
    uvloop.run(_serve(settings_from(section, loaded.project.data_dir / "relay"), as_json))
    note("stopped; the events stay")


def _overridden(section: RelaySection, **overrides: Any) -> RelaySection:
    given = {name: value for name, value in overrides.items() if value is not None}
    fields = {name: getattr(section, name) for name in section.model_fields_set if not name.endswith("_file")} | given
    try:
        return RelaySection(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        text = str(problem["msg"]).removeprefix("Value error, ")
        place = ".".join(["relay", *map(str, problem["loc"])])
        raise UsageError(text, where=place, remedy="see: headgate relay run --help, and docs/relay.md") from None


async def _serve(settings: RelaySettings, as_json: bool) -> None:
    has_token = settings.admin_token is not None
    await serve_relay(settings, lambda running: _show(running, as_json, has_token=has_token), stopped_by_signals())


def _show(running: Relay, as_json: bool, *, has_token: bool) -> None:
    if as_json:
        print_json({"url": running.url, "seq": running.parts.reader.head_seq, "recovered": running.recovered})
        return
    data_console.print(running.url, markup=False, soft_wrap=True)
    address = running.url.replace("http", "ws", 1)
    note(f"events:    {address}/xrpc/com.atproto.sync.subscribeRepos")
    note(f"jetstream: {address}/subscribe")
    if not has_token:
        note("there is no admin token: nobody can block hosts or take accounts down")
    note("Ctrl-C stops it")


@relay.command()
def status(
    url: Annotated[str, typer.Option("--url", help="Where the relay listens.")] = "http://127.0.0.1:2470",
    token: Annotated[
        str | None, typer.Option("--token", envvar="HEADGATE_RELAY_TOKEN", help="The operators' token.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a running relay counts, and by which limits, rules and intervals it goes."""
    told = _ask(f"{url.rstrip('/')}/admin/status", token)
    if as_json:
        print_json(told)
        return
    print_fields(told)


def _ask(url: str, token: str | None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url, headers=headers, timeout=10.0, trust_env=False)
        told = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ConnectError(f"{url} does not answer: {error}", remedy="give --url of a running relay") from None
    if answer.status_code != 200 or not isinstance(told, dict):
        said = told.get("message") if isinstance(told, dict) else answer.text[:200]
        raise UsageError(f"the relay says: {said}", remedy="give --token, that of its operators")
    return told


@relay.command()
def doors(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="The relay's data directory.")] = Path(".headgate/relay"),
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 picks a free one.")] = 2471,
    connections: Annotated[int, typer.Option("--connections", min=1, help="Consumers at a time.")] = 1000,
    per_address: Annotated[
        int, typer.Option("--per-address", min=0, help="Consumers from one address; 0: no limit.")
    ] = 100,
) -> None:
    """Serve the streams of a relay on this machine from one more process, until Ctrl-C."""
    configure_logs("info", "logfmt")
    options = FanOutOptions(any_origin=True, connections=connections, per_address=per_address)
    uvloop.run(_open_doors(data_dir, host, port, options))


async def _open_doors(data_dir: Path, host: str, port: int, options: FanOutOptions) -> None:
    stop = stopped_by_signals()
    async with open_streams(data_dir, host, port, options) as url:
        data_console.print(url, markup=False, soft_wrap=True)
        await stop.wait()


@relay.command()
def dictionary(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="The relay's data directory.")] = Path(".headgate/relay"),
) -> None:
    """Train a dictionary for Jetstream's compressed messages from the log; the relay uses it when it starts next.

    Consumers that ask for compression must have it then: they find it at /subscribe/dictionary.
    """
    trained = train_dictionary(data_dir)
    data_console.print(str(data_dir / DICTIONARY), markup=False, soft_wrap=True)
    note(f"{len(trained)} bytes, number {trained.dict_id()}; start the relay again to use it")


@relay.command()
def simulate(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long the network writes.")] = 10.0,
    hosts: Annotated[int, typer.Option("--hosts", min=2, max=200, help="Hosts of the network.")] = 5,
    accounts: Annotated[int, typer.Option("--accounts", min=1, max=10_000, help="Accounts on them.")] = 50,
    rate: Annotated[int, typer.Option("--rate", min=1, max=10_000, help="Commits per second.")] = 200,
    lies: Annotated[float, typer.Option("--lies", min=0, max=1, help="Share of commits lied about first.")] = 0.05,
    consumers: Annotated[int, typer.Option("--consumers", min=1, max=500, help="Consumers of the stream.")] = 2,
    workers: Annotated[int, typer.Option("--workers", min=0, max=64, help="Processes that validate.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Chooses accounts, writes and lies.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Start a network with liars on this machine and a relay that follows it, and compare what comes out.

    Exits with 0 only if every honest event came out, once and unchanged, and every lie was dropped.
    """
    configure_logs("error", "logfmt")
    with tempfile.TemporaryDirectory(prefix="headgate-relay-") as directory:
        wanted = Rehearsal(Path(directory), seconds, hosts, accounts, rate, lies, consumers, workers, seed)
        result = uvloop.run(_rehearsed(wanted, as_json))
    if as_json:
        print_json(result.as_dict())
    if not result.ok:
        text = f"{result.missing} honest events are missing, {result.unexpected} came out that should not have"
        raise DeliveryError(text, remedy=f"run it again with --seed {seed}, and look at the reasons")
    if not as_json:
        note(f"every one of {result.honest} honest events came out, and none of {result.lies} lies")


async def _rehearsed(wanted: Rehearsal, as_json: bool) -> Progress:
    stop = stopped_by_signals()
    if as_json or not note_console.is_terminal:
        return await rehearse(wanted, lambda progress: None, stop)
    with Live(console=note_console, auto_refresh=False) as live:
        return await rehearse(wanted, lambda progress: live.update(_view(progress), refresh=True), stop)


def _view(progress: Progress) -> Table:
    table = Table(title=progress.url, title_justify="left", show_header=False, box=None, padding=(0, 2))
    rows: dict[str, Any] = {
        "seconds": f"{progress.seconds:.1f}",
        "events/s": f"{progress.events_per_second:.0f}",
        "told by honest hosts": progress.honest,
        "accepted": progress.accepted,
        "at the consumers": f"{progress.received} x {progress.consumers}",
        "lies told": progress.lies,
        **{f"dropped: {reason}": count for reason, count in sorted(progress.dropped.items())},
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table
