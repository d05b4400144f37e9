"""From `headgate.toml` to the destinations `kafka`, `table` and `iggy`."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config.loading import parse
from headgate.destinations.base import Destination
from headgate.destinations.iggy import IggyDestination
from headgate.destinations.kafka import KafkaDestination
from headgate.destinations.table import TableDestination
from headgate.model import ConfigError
from headgate.pipeline.assemble import assemble

SECRET = "pa55-w0rd"


def destination(text: str, source: str = 'type = "random"') -> Destination:
    config = parse(
        f"""
        [project]
        data_dir = "/data"
        [sources.s]
        {source}
        [destinations.d]
        {text}
        [pipelines.p]
        source = "s"
        destinations = ["d"]
        topic = "t"
        """,
        environ={},
    )
    assert SECRET not in repr(config)
    assert SECRET not in config.model_dump_json()
    (spec,) = assemble(config, nats_url=None, postgres_url="postgres://me@host/db")
    return spec.destinations[0]


def test_kafka(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SECRET)
    built = destination(
        f"""
        type = "kafka"
        servers = "one:9092,two:9092"
        topic = "{{stream}}-{{topic}}"
        compression = "lz4"
        linger = "20ms"
        delivery_timeout = "1m"
        security_protocol = "sasl_ssl"
        sasl_mechanism = "SCRAM-SHA-512"
        user = "me"
        password_file = "{tmp_path / "password"}"
        settings = {{ "client.rack" = "a", "ssl.key.password" = "{SECRET}" }}
        """
    )
    assert isinstance(built, KafkaDestination)
    settings = built.options.producer_settings(gapless=built.exclusive)
    assert settings["bootstrap.servers"] == "one:9092,two:9092"
    assert (settings["linger.ms"], settings["message.timeout.ms"], settings["compression.type"]) == (20, 60_000, "lz4")
    assert (settings["sasl.password"], settings["ssl.key.password"]) == (SECRET, SECRET)
    assert not built.exclusive


def test_kafka_is_exclusive_for_changes_alone() -> None:
    cdc = 'type = "postgres-cdc"\n        slot = "s"\n        publication = "p"'
    kafka = 'type = "kafka"\n        servers = "one:9092"'
    for text, expected in ((kafka, True), (f"{kafka}\n        exclusive = false", False)):
        built = destination(text, cdc)
        assert isinstance(built, KafkaDestination)
        assert built.exclusive is expected
    with pytest.raises(ConfigError, match="one order") as raised:
        destination(f"{kafka}\n        exclusive = true")
    assert raised.value.where == "destinations.d.exclusive"


@pytest.mark.parametrize(
    ("line", "path"),
    [("", "/data/tables/d"), ('path = "t"', "/data/t"), ('path = "/x"', "/x"), ('path = "s3://b/t"', "s3://b/t")],
)
def test_table(line: str, path: str) -> None:
    built = destination(f'type = "table"\n        {line}')
    assert isinstance(built, TableDestination)
    assert built.path == path


def test_iggy() -> None:
    built = destination(f'type = "iggy"\n        server = "h:1"\n        user = "me"\n        password = "{SECRET}"')
    assert isinstance(built, IggyDestination)
    assert (built.options.server, built.options.password) == ("h:1", SECRET)
    with pytest.raises(ConfigError, match="mode"):
        destination('type = "iggy"\n        mode = "background"')
