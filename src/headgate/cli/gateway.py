"""`headgate gateway`: a Kafka broker whose log is PostgreSQL."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError

from headgate.cli.gateway_acls import acls
from headgate.cli.gateway_quotas import quotas
from headgate.cli.gateway_users import users
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.gateway import GatewaySection
from headgate.config.needs import Needs
from headgate.control.logs import configure_logs
from headgate.control.stack import open_stack
from headgate.gateway import Gateway, serve
from headgate.gateway.configured import options_from
from headgate.model import UsageError
from headgate.runtime.access import is_loopback

__all__ = ["gateway"]

gateway = typer.Typer(invoke_without_command=True)
gateway.add_typer(users, name="users")
gateway.add_typer(acls, name="acls")
gateway.add_typer(quotas, name="quotas")


@gateway.callback()
def run(
    context: typer.Context,
    config: ConfigOption = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help='Address to listen on; repeatable. "::" is all of IPv4 and IPv6.', show_default="127.0.0.1"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks one.", show_default="9092"),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option("--advertised", metavar="HOST:PORT", help="Address that clients are told to connect to."),
    ] = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Let in anybody who can connect, at any address, without a login.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let Kafka clients write to and read from PostgreSQL, until Ctrl-C.

    The log is in the schema `kafka` of the database that `postgres.url` names, or of the embedded one. Topics are made
    when they are first used. Several gateways may serve the same database: start each with a port of its own.

    The table `gateway` of the configuration has the rest: users, TLS, limits. Anything but loopback needs users, of the
    configuration or of the database: see headgate gateway users.

    \b
    Try it:
      headgate gateway
      echo hello | kcat -b 127.0.0.1:9092 -t greetings -P
      kcat -b 127.0.0.1:9092 -t greetings -C -o beginning -e
    """
    if context.invoked_subcommand is not None:
        return
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    opened = allow_anonymous or None
    section = _overridden(loaded.gateway, host=host, port=port, advertised=advertised, allow_anonymous=opened)
    configure_logs(loaded.logging.level, loaded.logging.format)
    stack, endpoints = open_stack(loaded, Needs(nats=False))
    try:
        url = endpoints.postgres_url or loaded.postgres.url.get_secret_value()
        serve(options_from(section, url), ready=lambda running: _show(running, url, as_json, loaded.postgres.embedded))
        note("stopped; the data stays")
    finally:
        if stack is not None:
            stack.stop()


def _overridden(section: GatewaySection, **overrides: Any) -> GatewaySection:
    given = {name: value for name, value in overrides.items() if value is not None}
    fields = {name: getattr(section, name) for name in section.model_fields_set} | given
    try:
        return GatewaySection(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        text = str(problem["msg"]).removeprefix("Value error, ")
        place = ".".join(["gateway", *map(str, problem["loc"])])
        raise UsageError(text, where=place, remedy="see: headgate gateway --help, and docs/gateway.md") from None


def _show(gateway: Gateway, url: str, as_json: bool, is_embedded: bool) -> None:
    cluster = gateway.services.cluster
    if as_json:
        print_json({"bootstrap": str(gateway.advertised), "node_id": cluster.node_id, "cluster_id": cluster.id})
        return
    address = str(gateway.advertised)
    data_console.print(f"bootstrap.servers={address}", soft_wrap=True, markup=False)
    note(f"listening on {', '.join(gateway.options.hosts)}, port {gateway.options.port}; clients are told {address}")
    others = len(cluster.live()) - 1
    if others:
        note(f"node {cluster.node_id}, beside {others} other gateways of this database")
    if gateway.options.is_guarded:
        note(f"clients log in with SASL: {', '.join(gateway.services.logins.mechanisms)}{_or_certificate(gateway)}")
    elif not all(map(is_loopback, gateway.options.hosts)):
        note("WARNING: anybody who can reach this address may read, write and delete everything (allow_anonymous)")
    note(f"write:  echo hello | kcat -b {address} -t greetings -P")
    note(f"read:   kcat -b {address} -t greetings -C -o beginning -e")
    if is_embedded:
        note(f'SQL:    psql "{url}" -c "table kafka.messages"')
    note("Ctrl-C stops it; what was accepted is finished first")


def _or_certificate(gateway: Gateway) -> str:
    return "" if gateway.options.tls_client_auth == "none" else ", or with a certificate"
