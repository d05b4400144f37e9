"""What is wrong with a file whose every key is right: all of it is told, at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.config import InvalidConfigError, parse
from headgate.config.semantics import FIXED_COLUMNS
from headgate.sources.atproto.rows import SCHEMA as ATPROTO
from headgate.sources.broker.group import SCHEMA as BROKER
from headgate.sources.kafka.rows import SCHEMA as KAFKA
from headgate.sources.random.datasource import _SCHEMA as RANDOM

BASE = """
[sources.s]
type = "random"

[destinations.d]
type = "discard"

[pipelines.p]
source = "s"
destinations = ["d"]
topic = "orders.{kind}"
"""
HOOK = (
    '[sources.hook]\ntype = "webhook"\nport = 8710\n[pipelines.h]\nsource = "hook"\ndestinations = ["d"]\ntopic = "t"\n'
)
BROKER_ON = "[broker]\nenabled = true"
NO_KIND = "pipelines.p.topic: there is no column 'kind'"
ROUTED = """
[sources.s]
type = "random"

[destinations.d]
type = "webhook"
url = "https://x.example/{stream}/{topic}"

[pipelines.p]
source = "s"
destinations = ["d"]
transforms = [{ type = "route", field = "kind", mapping = { a = "t", b = { stream = "s", topic = "t" } } }]
"""


def problems(text: str) -> list[str]:
    try:
        parse(text)
    except InvalidConfigError as error:
        return [f"{problem.key}: {problem.message}" for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (BASE, []),
        (BASE.replace("{kind}", "{kin"), ["pipelines.p.topic: a brace of 'orders.{kin' has no partner"]),
        (BASE.replace("{kind}", "{knd}"), ["pipelines.p.topic: there is no column 'knd'"]),
        (BASE + 'transforms = [{ type = "drop", columns = ["kind"] }]', [NO_KIND]),
        (BASE + 'transforms = [{ type = "rename", columns = { note = "kind2" } }]', []),
        (BASE.replace("{kind}", "{x}") + 'transforms = [{ type = "sql", query = "select *, 1 as x from batch" }]', []),
        (BASE + HOOK, ["sources.hook.port: 127.0.0.1:8710 is used twice"]),
        (BASE + HOOK.replace("8710", "8720") + BROKER_ON, ["sources.hook.port: 127.0.0.1:8720 is used twice"]),
        (BASE + HOOK.replace("port = 8710", ""), []),
        (BASE + HOOK.replace("8710", "0") + "[control]\nport = 0", []),
        (ROUTED, ["pipelines.p.transforms[0].mapping.a: the url of d asks for a stream, and this names none"]),
        (ROUTED.replace('a = "t", ', ""), []),
    ],
    ids=["good", "brace", "column", "dropped", "renamed", "sql", "port", "broker", "default", "any", "stream", "named"],
)  # fmt: skip
def test_problems(text: str, wanted: list[str]) -> None:
    assert problems(text) == wanted


@pytest.mark.parametrize("kind", ["table", "broker", "eventlog"])
def test_partitions_are_for_destinations_that_have_them(kind: str) -> None:
    more = {"table": 'path = "x"'}.get(kind, "")
    text = ROUTED.replace('type = "webhook"\nurl = "https://x.example/{stream}/{topic}"', f'type = "{kind}"\n{more}')
    routing = (
        '[pipelines.p.routing]\npartition_key_column = "id"\npartition_key_encoding = "partition_id"\n'
        "topic_defaults = { partitions_count = 3 }\n"
    )
    assert problems(text + routing) == [
        f"pipelines.p.routing.partition_key_encoding: the destination d ({kind}) has no partitions"
    ]


@pytest.mark.parametrize("master", ["foo", "local[x]", "spark:", "http://x"])
def test_a_master_that_spark_does_not_know(master: str) -> None:
    (problem,) = problems(f'[spark]\nmaster = "{master}"\n' + BASE)
    assert problem.startswith("spark.master")


def test_everything_is_told_at_once() -> None:
    """A table with a problem does not hide those of others, and is not taken for missing."""
    text = (
        BASE.replace('"random"', '"randm"').replace("{kind}", "{kin") + '[spark]\nmaster = "foo"\n[control]\nprt = 1\n'
    )
    found = problems(text)
    assert [each.partition(":")[0] for each in found] == [
        "sources.s", "pipelines.p.topic", "spark.master", "control.prt",
    ]  # fmt: skip
    assert len(problems("[control]\nport = ${NOPE}\n")) == 1


def test_columns_are_those_of_the_sources() -> None:
    schemas = {"random": RANDOM, "kafka": KAFKA, "log": KAFKA, "broker": BROKER, "atproto": ATPROTO}
    for kind, columns in FIXED_COLUMNS.items():
        flat = schemas[kind].replace("array<struct<key: string, value: binary>>", "array")
        names = [part.split()[0] for part in flat.split(", ")]
        assert tuple(name for name in names if not name.startswith("_")) == columns, kind


def test_sql_is_parsed_by_spark_and_told_with_the_rest(tmp_path: Path) -> None:
    (tmp_path / "headgate.toml").write_text(
        BASE
        + 'transforms = [{ type = "filter", where = "amount > > 3" },\n{ type = "select", columns = ["id", "(id"] },\n'
        + '{ type = "sql", query = "selec * from batch" }]\n'
        + '[sources.f]\ntype = "files"\npath = "x"\nformat = "jsonl"\nrow_schema = "id bigint, name strin g"\n'
        + "[control]\nprt = 1\n"
    )
    answer = CliRunner().invoke(app, ["validate", "--json", "--config", str(tmp_path / "headgate.toml")])
    found = json.loads(answer.stdout)
    assert [problem["key"] for problem in found["problems"]] == [
        "control.prt", "pipelines.p.transforms[0].where", "pipelines.p.transforms[1].columns",
        "pipelines.p.transforms[2].query", "sources.f.row_schema",
    ]  # fmt: skip
    assert "PARSE_SYNTAX_ERROR" in found["problems"][1]["message"]
    assert all(problem["line"] for problem in found["problems"])


MIRROR = """
[sources.log]
type = "log"
topics = ["orders"]
unit = "batches"

[destinations.mirror]
type = "shadow"
servers = "k:9092"

[pipelines.shadow]
source = "log"
destinations = ["mirror"]
"""


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("", "", []),
        (
            'unit = "batches"',
            "",
            [
                "pipelines.shadow.topic: this key is required",
                "pipelines.shadow.destinations: the destination mirror (shadow) takes whole batches alone",
            ],
        ),
        (
            'type = "shadow"\nservers = "k:9092"',
            'type = "discard"',
            ["pipelines.shadow.destinations: the destination mirror (discard) takes no whole batches of log"],
        ),
        (
            'source = "log"',
            'source = "log"\ntopic = "t"\ntransforms = [{ type = "filter", where = "true" }]',
            [
                "pipelines.shadow.topic: whole batches go as they are",
                "pipelines.shadow.transforms: whole batches go as they are",
            ],
        ),
        ('unit = "batches"', 'unit = "batches"\npartitions = 4', ["sources.log: "]),
        ('servers = "k:9092"', 'servers = "k:9092"\npercent = 0', ["destinations.mirror.percent: "]),
        (
            'servers = "k:9092"',
            'servers = "k:9092"\nsecurity_protocol = "sasl_ssl"\nsasl_mechanism = "GSSAPI"',
            ["destinations.mirror.sasl_mechanism: "],
        ),
    ],
)
def test_whole_batches_go_to_mirrors_and_nothing_else_does(before: str, after: str, wanted: list[str]) -> None:
    found = problems(MIRROR.replace(before, after))
    assert len(found) == len(wanted), found
    for problem, expected in zip(found, wanted, strict=True):
        assert problem.startswith(expected)
