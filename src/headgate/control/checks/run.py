"""Runs the checks that a configuration calls for."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.config import Config
from headgate.config.sources import PostgresCdcSourceSection
from headgate.control.checks.cdc import check_cdc
from headgate.control.checks.failover import primary_of
from headgate.control.checks.gateway import check_gateway
from headgate.control.checks.nats import check_nats, check_stream
from headgate.control.checks.postgres import check_postgres
from headgate.control.checks.spark import check_spark
from headgate.control.checks.verdict import Check, Outcome, failed
from headgate.control.service import open_stack
from headgate.destinations.base import Destination
from headgate.destinations.iggy import IggyDestination
from headgate.destinations.kafka import KafkaDestination
from headgate.destinations.nats import NatsDestination, NatsOptions
from headgate.destinations.webhook import WebhookDestination
from headgate.embedded import Endpoints
from headgate.model import HeadgateError
from headgate.pipeline.assemble import assemble, nats_credentials

__all__ = ["run_checks"]


def run_checks(config: Config, *, start_spark: bool) -> Iterator[Check]:
    """Everything, in the order in which a person would look. Embedded servers are started for it if need be."""
    try:
        stack, endpoints = open_stack(config)
    except HeadgateError as error:
        yield failed("embedded servers", error)
        return
    try:
        if stack is not None:
            yield Check("embedded servers", Outcome.OK, f"started in {config.project.data_dir}")
        yield from _postgres(config, endpoints.postgres_url or config.postgres.url.get_secret_value())
        yield from check_nats(_nats(config, endpoints.nats_url))
        yield from _destinations(config, endpoints)
        yield from check_gateway(config.gateway)
    finally:
        if stack is not None:
            stack.stop()
    remote = not config.spark.master.startswith("local")
    yield from check_spark(config.spark, config.project.data_dir, start=start_spark or remote)


def _postgres(config: Config, url: str) -> Iterator[Check]:
    """Every server that the file names, then each of its sources on it."""
    used = {pipeline.source for pipeline in config.pipelines.values() if pipeline.enabled}
    by_url: dict[str, list[PostgresCdcSourceSection]] = {url: []}
    for name, section in config.sources.items():
        if isinstance(section, PostgresCdcSourceSection) and (name in used or not config.pipelines):
            by_url.setdefault(section.url.get_secret_value() if section.url else url, []).append(section)
    if not by_url[url] and len(by_url) > 1 and not config.postgres.embedded:
        del by_url[url]  # nothing of the file is there
    for address, sections in ((primary_of(address), sections) for address, sections in by_url.items()):
        is_up = False
        for check in check_postgres(address, [section.slot for section in sections]):
            is_up = is_up or (check.subject == "wal_level")
            yield check
        for section in sections if is_up else ():
            yield from check_cdc(section, address)


def _destinations(config: Config, endpoints: Endpoints) -> Iterator[Check]:
    """What the file's destinations write to. Nothing is created."""
    postgres_url = endpoints.postgres_url or config.postgres.url.get_secret_value()
    try:
        specs = assemble(config, nats_url=endpoints.nats_url, postgres_url=postgres_url)
    except HeadgateError as error:
        yield failed("pipelines", error)
        return
    for destination in {each.name: each for spec in specs for each in spec.destinations}.values():
        if isinstance(destination, NatsDestination):
            yield from check_stream(destination)
        elif isinstance(destination, KafkaDestination | IggyDestination | WebhookDestination):
            yield _answers(destination)


def _answers(destination: Destination) -> Check:
    """Kinds whose `ensure` creates nothing: it asks whether the server answers."""
    subject = f"destination {destination.name}"
    try:
        destination.ensure()
    except HeadgateError as error:
        return failed(subject, error)
    return Check(subject, Outcome.OK, ", ".join(str(value) for value in destination.details().values()))


def _nats(config: Config, embedded_url: str | None) -> NatsOptions:
    url = embedded_url or config.nats.url.get_secret_value()
    return NatsOptions(url=url, stream="check", subjects=("check",), **nats_credentials(config.nats))
