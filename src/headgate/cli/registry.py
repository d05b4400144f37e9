"""`headgate registry`: a schema registry stored in PostgreSQL."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError

from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.needs import Needs
from headgate.config.registry import RegistrySection
from headgate.control.logs import configure_logs
from headgate.control.stack import open_stack
from headgate.model import UsageError
from headgate.registry.configured import registry_options
from headgate.registry.http.server import RegistryServer, serve

__all__ = ["registry"]


def registry(
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0 picks a free one.", show_default="8081")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Keep Avro, JSON and Protobuf schemas in PostgreSQL for Confluent's clients, until Ctrl-C.

    They are in the schema `registry` of the database that `postgres.url` names, or of the embedded one. Several may
    serve the same database.

    The table `registry` of the configuration has the rest: users, TLS. Anything but loopback needs users.

    \b
    Try it:
      headgate registry
      curl http://127.0.0.1:8081/subjects
    """
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    section = _overridden(loaded.registry, host=host, port=port)
    configure_logs(loaded.logging.level, loaded.logging.format)
    stack, endpoints = open_stack(loaded, Needs(postgres=section.url is None, nats=False))
    try:
        url = endpoints.postgres_url or loaded.postgres.url.get_secret_value()
        serve(registry_options(section, url), ready=lambda running: _show(running, as_json))
        note("stopped; the schemas stay")
    finally:
        if stack is not None:
            stack.stop()


def _overridden(section: RegistrySection, **overrides: Any) -> RegistrySection:
    given = {name: value for name, value in overrides.items() if value is not None}
    fields = {name: getattr(section, name) for name in section.model_fields_set if not name.endswith("_file")} | given
    try:
        return RegistrySection(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        text = str(problem["msg"]).removeprefix("Value error, ")
        place = ".".join(["registry", *map(str, problem["loc"])])
        raise UsageError(text, where=place, remedy="see: headgate registry --help, and docs/registry.md") from None


def _show(running: RegistryServer, as_json: bool) -> None:
    if as_json:
        print_json({"url": running.url})
        return
    data_console.print(f"schema.registry.url={running.url}", soft_wrap=True, markup=False)
    if running.options.users:
        note("clients log in with basic authentication: basic.auth.user.info=NAME:PASSWORD")
    note(f"look:  curl {running.url}/subjects")
    note("Ctrl-C stops it; what was accepted is finished first")
