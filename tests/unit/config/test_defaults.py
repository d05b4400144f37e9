"""A default is declared once: a table of headgate.toml and the options that it is written to cannot drift apart."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from headgate.broker import DEFAULT_SCHEMA
from headgate.config import load
from headgate.config.base import Section
from headgate.config.destinations import (
    BrokerDestinationSection,
    ConsoleDestinationSection,
    DestinationSection,
    EventLogDestinationSection,
    KafkaDestinationSection,
    LogDestinationSection,
    MemoryDestinationSection,
    ShadowDestinationSection,
    TableDestinationSection,
)
from headgate.config.models import DeadLettersSection
from headgate.config.options import Option, default_of
from headgate.config.sources import DebeziumSection, SourceSection
from headgate.destinations.broker import BrokerDestination
from headgate.destinations.console import ConsoleDestination
from headgate.destinations.eventlog import EventLogDestination
from headgate.destinations.kafka import KafkaOptions
from headgate.destinations.log import LogDestination
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.shadow import ShadowDestination
from headgate.destinations.table import TableDestination
from headgate.eventlog import LogOptions
from headgate.pipeline.assemble import assemble
from headgate.shadow.cluster import Cluster
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.sources.broker.options import BrokerSourceOptions
from headgate.sources.files.options import FileLinesOptions
from headgate.sources.kafka.options import KafkaSourceOptions
from headgate.sources.log.options import LogSourceOptions
from headgate.sources.options import camel_case
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.random.options import RandomOptions
from headgate.sources.webhook.options import ReaderOptions
from headgate.wire.envelope import DebeziumOptions

KINDS: tuple[type[Section], ...] = (*get_args(get_args(SourceSection)[0]), *get_args(get_args(DestinationSection)[0]))

# Keys with a default of their own, as nothing else has one for them.
ONLY_HERE = {
    # A server made without the configuration takes any port that is free, and requests to any path.
    "WebhookSourceSection": {"host", "port", "path"},
    # How lines become columns is said to Spark's own parser.
    "FilesSourceSection": {"row_schema", "header", "mode"},
    # The stream keeps what a publisher compressed.
    "NatsDestinationSection": {"compression"},
    # Plain arguments of the destination, or options of the server beside it: compared below where they have defaults.
    "KafkaDestinationSection": {"security_protocol"},
    "KafkaSourceSection": {"security_protocol"},
    "LogDestinationSection": {"topic", "partitions", "cleanup_policy"},
    "ShadowDestinationSection": {
        "security_protocol", "topic_prefix", "percent", "replicas", "groups", "group_interval", "timeout",
    },
    "BrokerDestinationSection": {"broker_schema", "topic", "payload"},
    "TableDestinationSection": {"compression"},
    "MemoryDestinationSection": {"max_rows"},
    "ConsoleDestinationSection": {"max_rows_per_batch"},
    "EventLogDestinationSection": {
        "topic", "segment_events", "segment_bytes", "max_age", "max_bytes", "host", "port", "max_connections",
    },
    "AtprotoSourceSection": {"url"},
}  # fmt: skip


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _options(section: type[Section]) -> Iterator[tuple[str, Option]]:
    for key, info in section.model_fields.items():
        yield from ((key, each) for each in info.metadata if isinstance(each, Option))


@pytest.mark.parametrize("section", KINDS, ids=lambda section: section.__name__)
def test_a_key_has_the_default_of_its_option_in_its_unit(section: type[Section]) -> None:
    for key, option in _options(section):
        info, default = section.model_fields[key], default_of(option.options, option.field)
        if default is ...:
            assert info.is_required(), key
            continue
        written = info.default * 1000 if option.in_milliseconds else info.default
        assert (",".join(written) if option.is_list else written) == default, key


@pytest.mark.parametrize("section", KINDS, ids=lambda section: section.__name__)
def test_a_key_that_is_no_option_has_no_default_that_could_drift(section: type[Section]) -> None:
    declared = {key for key, _ in _options(section)}
    own = {key for key, info in section.model_fields.items() if not info.is_required() and info.default is not None}
    factories = {key for key, info in section.model_fields.items() if info.default_factory is not None}
    assert own - declared - factories == ONLY_HERE.get(section.__name__, set())


SPARK: dict[str, tuple[str, type[Any], set[str]]] = {
    "random": ("", RandomOptions, set()),
    "postgres-cdc": ('slot = "s"\npublication = "p"', CdcOptions, {"url", "spool", "confirm", "dead_letters"}),
    "postgres-poll": ('table = "t"\ntracking_column = "c"', PollOptions, {"url", "directory"}),
    "files": ('path = "/logs"\nformat = "text"', FileLinesOptions, {"path", "directory"}),
    "kafka": ('servers = "h:9092"\ntopics = ["t"]', KafkaSourceOptions, {"settings"}),
    "log": ('topics = ["t"]', LogSourceOptions, {"url"}),
    "broker": ('group = "g"', BrokerSourceOptions, {"url", "owner", "params"}),
    "atproto": ('url = "wss://relay.example"', AtprotoSourceOptions, {"spool", "confirm"}),
    "webhook": ("", ReaderOptions, {"spool", "confirm"}),
}
GIVEN = {"slot": "s", "publication": "p", "table": "t", "tracking_column": "c", "subscribe": "t", "group": "g",
         "url": "wss://relay.example"}  # fmt: skip


@pytest.mark.parametrize("kind", SPARK)
def test_a_table_with_nothing_but_what_it_must_have_gives_the_data_source_its_own_defaults(
    kind: str, tmp_path: Path
) -> None:
    keys, options, by_pipeline = SPARK[kind]
    topic = "" if kind == "postgres-cdc" else 'topic = "t"'
    file = tmp_path / "headgate.toml"
    file.write_text(
        f'[sources.s]\ntype = "{kind}"\n{keys}\n[destinations.d]\ntype = "discard"\n'
        f'[pipelines.p]\nsource = "s"\ndestinations = ["d"]\n{topic}\n'
    )
    [spec] = assemble(load(file), nats_url=None, postgres_url="postgres://h/d")
    parsed = options.from_spark(spec.source.options())
    found = {
        camel_case(field.name): getattr(parsed, field.name)
        for field in dataclasses.fields(options)
        if field.name not in by_pipeline and getattr(parsed, field.name) != default_of(options, field.name)
    }
    assert found == {camel_case(name): value for name, value in GIVEN.items() if camel_case(name) in found}


PLAIN: list[tuple[type[Section], type[Any], dict[str, str]]] = [
    (EventLogDestinationSection, LogOptions, {"max_age": "max_age_s"} | _same("segment_events", "segment_bytes")),
    (EventLogDestinationSection, LogOptions, _same("max_bytes")),
    (EventLogDestinationSection, EventLogDestination, _same("topic")),
    (LogDestinationSection, LogDestination, _same("topic", "partitions", "cleanup_policy")),
    (BrokerDestinationSection, BrokerDestination, {"broker_schema": "schema"} | _same("topic", "payload")),
    (TableDestinationSection, TableDestination, _same("compression")),
    (KafkaDestinationSection, KafkaOptions, _same("security_protocol")),
    (ShadowDestinationSection, ShadowDestination, _same("topic_prefix", "percent", "replicas", "groups")),
    (ShadowDestinationSection, ShadowDestination, {"group_interval": "group_interval_s"}),
    (ShadowDestinationSection, Cluster, {"timeout": "timeout_s"} | _same("security_protocol")),
    (DeadLettersSection, CdcOptions, {"max_rows": "max_dead_letters", "max_bytes": "max_dead_letter_bytes"}),
    # A prefix that is not given is the slot's name.
    (DebeziumSection, DebeziumOptions, _same(*(set(DebeziumSection.model_fields) - {"topic_prefix"}))),
]


@pytest.mark.parametrize(("section", "made", "fields"), PLAIN)
def test_a_key_whose_options_are_too_heavy_to_import_agrees_with_them(
    section: type[Section], made: type[Any], fields: dict[str, str]
) -> None:
    for key, field in fields.items():
        assert section.model_fields[key].default == default_of(made, field), key


def test_arguments_of_plain_classes_have_the_same_defaults_too() -> None:
    memory = inspect.signature(MemoryDestination).parameters["max_rows"]
    assert MemoryDestinationSection.model_fields["max_rows"].default == memory.default
    console = inspect.signature(ConsoleDestination).parameters["max_rows_per_batch"]
    assert ConsoleDestinationSection.model_fields["max_rows_per_batch"].default == console.default
    assert default_of(BrokerSourceOptions, "schema") == DEFAULT_SCHEMA
