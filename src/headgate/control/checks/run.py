"""Runs the checks that a configuration calls for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.config import Config
from headgate.config.needs import Needs, needs_of, used_sources
from headgate.config.sources import PostgresCdcSourceSection
from headgate.control.checks.cdc import check_cdc
from headgate.control.checks.failover import primary_of
from headgate.control.checks.gateway import check_gateway
from headgate.control.checks.nats import check_nats, check_stream
from headgate.control.checks.postgres import check_connection, check_postgres
from headgate.control.checks.spark import check_spark
from headgate.control.checks.verdict import Check, Outcome, failed
from headgate.control.stack import open_stack
from headgate.destinations.nats import NatsDestination, NatsOptions
from headgate.destinations.nats.build import nats_credentials
from headgate.embedded import Endpoints
from headgate.model import HeadgateError, OccupiedError
from headgate.pipeline.assemble import assemble
from headgate.sources.postgres_cdc.source import PostgresCdcSource

__all__ = ["answer", "check_used_postgres", "nats_server", "run_checks"]


def run_checks(config: Config, *, start_spark: bool) -> Iterator[Check]:
    """What the file uses, in the order in which a person would look. Embedded servers are started if need be."""
    is_bare = not (config.sources or config.pipelines or config.gateway.enabled or config.broker.enabled)
    needs = Needs() if is_bare else needs_of(config)  # without anything that uses them yet, the servers that it names
    try:
        stack, endpoints = open_stack(config, needs)
    except HeadgateError as error:
        yield failed("embedded servers", error)
        return
    try:
        if stack is not None:
            yield Check("embedded servers", Outcome.OK, f"started in {config.project.data_dir}")
        url = endpoints.postgres_url or config.postgres.url.get_secret_value()
        yield from check_postgres(url) if is_bare else check_used_postgres(config, url, needs)
        if needs.nats:
            yield from check_nats(nats_server(config, endpoints.nats_url))
        yield from _pipelines(config, endpoints)
        yield from check_gateway(config.gateway)
    finally:
        if stack is not None:
            stack.stop()
    if config.pipelines or is_bare:
        remote = not config.spark.master.startswith("local")
        yield from check_spark(config.spark, config.project.data_dir, start=start_spark or remote)


def check_used_postgres(config: Config, url: str, needs: Needs) -> Iterator[Check]:
    """Every server that the file uses for change data capture, then each of its sources on it."""
    by_url: dict[str, list[PostgresCdcSourceSection]] = {}
    for section in used_sources(config).values():
        if isinstance(section, PostgresCdcSourceSection):
            by_url.setdefault(section.url.get_secret_value() if section.url else url, []).append(section)
    if needs.postgres and url not in by_url:
        yield from check_connection(url)
    for address, sections in ((primary_of(address), sections) for address, sections in by_url.items()):
        is_up = False
        for check in check_postgres(address, [section.slot for section in sections]):
            is_up = is_up or (check.subject == "wal_level")
            yield check
        for section in sections if is_up else ():
            yield from check_cdc(section, address)


def _pipelines(config: Config, endpoints: Endpoints) -> Iterator[Check]:
    """What pipelines read from and write to. Nothing is created."""
    postgres_url = endpoints.postgres_url or config.postgres.url.get_secret_value()
    try:
        specs = assemble(config, nats_url=endpoints.nats_url, postgres_url=postgres_url)
    except HeadgateError as error:
        yield failed("pipelines", error)
        return
    for source in {spec.source.name: spec.source for spec in specs}.values():
        if not isinstance(source, PostgresCdcSource):
            yield from answer(f"source {source.name}", source.check)
    for destination in {each.name: each for spec in specs for each in spec.destinations}.values():
        if isinstance(destination, NatsDestination):
            yield from check_stream(destination)
        else:
            yield from answer(f"destination {destination.name}", destination.check)


def answer(subject: str, ask: Callable[[], str]) -> Iterator[Check]:
    """What one says of itself; nothing if there is nothing to say."""
    try:
        found = ask()
    except OccupiedError as error:
        fix = f"unless it is headgate that runs already: {error.remedy}"
        yield Check(subject, Outcome.WARN, str(error), fix)
    except HeadgateError as error:
        yield failed(subject, error)
    else:
        if found:
            yield Check(subject, Outcome.OK, found)


def nats_server(config: Config, embedded_url: str | None) -> NatsOptions:
    """The server of `[nats]`, to look at it."""
    url = embedded_url or config.nats.url.get_secret_value()
    return NatsOptions(url=url, stream="check", subjects=("check",), **nats_credentials(config.nats))
