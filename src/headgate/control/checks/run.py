"""Runs the checks that a configuration calls for."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.config import Config
from headgate.control.checks.gateway import check_gateway
from headgate.control.checks.nats import check_nats
from headgate.control.checks.postgres import check_postgres
from headgate.control.checks.spark import check_spark
from headgate.control.checks.verdict import Check, Outcome, failed
from headgate.control.service import open_stack
from headgate.destinations.nats import NatsOptions
from headgate.model import HeadgateError
from headgate.pipeline.assemble import nats_credentials

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
        yield from check_postgres(endpoints.postgres_url or config.postgres.url.get_secret_value())
        yield from check_nats(_nats(config, endpoints.nats_url))
        yield from check_gateway(config.gateway)
    finally:
        if stack is not None:
            stack.stop()
    remote = not config.spark.master.startswith("local")
    yield from check_spark(config.spark, config.project.data_dir, start=start_spark or remote)


def _nats(config: Config, embedded_url: str | None) -> NatsOptions:
    url = embedded_url or config.nats.url.get_secret_value()
    return NatsOptions(url=url, stream="check", subjects=("check",), **nats_credentials(config.nats))
