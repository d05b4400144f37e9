"""`headgate validate` refuses what `check` and `run` would: a trigger or an ordering that cannot be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.config import parse
from headgate.model import ConfigError
from headgate.pipeline.assemble import assemble

CDC = 'type = "postgres-cdc"\nslot = "s"\npublication = "p"'
NATS = 'type = "nats"\nstream = "S"\nsubjects = ["s.>"]'
KAFKA = 'type = "kafka"\nservers = "127.0.0.1:1"'
HOOK = 'type = "webhook"\nurl = "https://x.example/"'
UNKEPT = "d can tell a replay only by the order of all rows"
TOUCHED = "only untransformed or routed rows of a postgres-cdc source can be shared out"
UNFOLLOWED = "only untransformed or routed rows of a postgres-cdc source can be followed, to no `table` or `memory`"


def file_of(source: str = CDC, destination: str = NATS, asks: str = 'ordering = "key"', more: str = "") -> str:
    return (
        f'{more}\n[sources.s]\n{source}\n[destinations.d]\n{destination}\n[pipelines.p]\nsource = "s"\n'
        f'destinations = ["d"]\n{asks}\n'
    )


def validated(directory: Path, text: str) -> list[dict[str, Any]]:
    file = directory / "headgate.toml"
    file.write_text(text)
    answer = CliRunner().invoke(app, ["validate", "--json", "--config", str(file)])
    told = json.loads(answer.stdout)
    assert told["valid"] is (not told["problems"])
    assert bool(answer.exit_code) is bool(told["problems"])
    assert [path.name for path in directory.iterdir()] == ["headgate.toml"], "it writes nothing"
    problems: list[dict[str, Any]] = told["problems"]
    return problems


CASES = {
    "nats": (file_of(), None),
    "tasks": (file_of(asks='ordering = "table"\ntasks = 8'), None),
    "kafka without a fence": (file_of(destination=KAFKA + "\nexclusive = false"), None),
    "routed": (
        file_of(asks='ordering = "key"\ntransforms = [{ type = "route", field = "t", mapping = { a = "t" } }]'),
        None,
    ),
    "total": (file_of(destination=KAFKA, asks='ordering = "total"\ntasks = 8'), None),
    "disabled": (file_of(destination=HOOK, asks='ordering = "key"\nenabled = false\n'), UNKEPT),
    "kafka": (file_of(destination=KAFKA), UNKEPT),
    "eventlog": (file_of(destination='type = "eventlog"', asks='ordering = "table"'), UNKEPT),
    "webhook": (file_of(destination=HOOK), UNKEPT),
    "table": (file_of(destination='type = "table"\npath = "x"'), UNKEPT),
    "iggy": (file_of(destination='type = "iggy"\nserver = "127.0.0.1:1"\nuser = "u"\npassword = "p"'), UNKEPT),
    "json": (file_of(asks='ordering = "key"\nformat = "json"\ntopic = "t"'), TOUCHED),
    "drop": (file_of(asks='ordering = "key"\ntransforms = [{ type = "drop", columns = ["txid"] }]'), TOUCHED),
    "random": (file_of(source='type = "random"', asks='ordering = "key"\ntopic = "t"'), TOUCHED),
    "realtime": (file_of(asks='trigger = "realtime"'), None),
    "realtime of another source": (
        file_of(source='type = "random"', asks='trigger = "realtime"\ntopic = "t"'),
        UNFOLLOWED,
    ),
    "realtime to memory": (file_of(destination='type = "memory"', asks='trigger = "realtime"'), UNFOLLOWED),
    "realtime in shares": (
        file_of(asks='trigger = "realtime"\nordering = "key"'),
        'with ordering = "key" several tasks share a batch',
    ),
    "realtime elsewhere": (
        file_of(asks='trigger = "realtime"', more='[spark]\nmaster = "spark://nowhere.invalid:7077"'),
        "spark.master is spark://nowhere.invalid:7077, and tasks follow a reader on their own machine",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_validate_says_what_run_says(case: str, tmp_path: Path) -> None:
    text, reason = CASES[case]
    problems = validated(tmp_path, text)
    config = parse(text, where=tmp_path / "headgate.toml")
    enabled = config.model_copy(
        update={"pipelines": {name: p.model_copy(update={"enabled": True}) for name, p in config.pipelines.items()}}
    )
    if reason is None:
        assert problems == []
        assert len(assemble(enabled, nats_url=None, postgres_url="postgres://nowhere.invalid/x")) == 1
        return
    (problem,) = problems
    assert reason in problem["message"]
    with pytest.raises(ConfigError) as caught:
        assemble(enabled, nats_url=None, postgres_url="postgres://nowhere.invalid/x")
    assert problem["message"] == caught.value.message
    assert problem["remedy"] == caught.value.remedy
    assert problem["key"] == caught.value.where
    assert text.splitlines()[problem["line"] - 1].startswith(problem["key"].rpartition(".")[2])


def test_every_pipeline_is_told_of_with_the_rest(tmp_path: Path) -> None:
    text = file_of(destination=HOOK) + (
        '[pipelines.q]\nsource = "s"\ndestinations = ["d", "m"]\ntrigger = "realtime"\n'
        '[pipelines.nowhere]\nsource = "s"\ndestinations = ["x"]\nordering = "key"\n'
        '[destinations.m]\ntype = "memory"\n[control]\nprt = 1\n'
    )
    keys = [problem["key"] for problem in validated(tmp_path, text)]
    assert sorted(keys) == [
        "control.prt",
        "pipelines.nowhere.destinations",
        "pipelines.p.ordering",
        "pipelines.q.trigger",
    ]


def test_what_a_destination_refuses_by_itself_is_told(tmp_path: Path) -> None:
    more = '[spark]\nmaster = "spark://nowhere.invalid:7077"'
    (problem,) = validated(tmp_path, file_of(destination='type = "eventlog"', more=more))
    assert problem["key"] == "destinations.d"
    assert "on the machine that has its files" in problem["message"]


def test_a_client_that_is_not_installed_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "headgate.pipeline.assemble", None)
    file = tmp_path / "headgate.toml"
    file.write_text(file_of(asks=""))
    assert CliRunner().invoke(app, ["validate", "--config", str(file)]).exit_code == 0, "nobody asked for it"
