"""docs/gateway.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.commitlog.configs import CONFIGS
from headgate.config import parse
from headgate.config.gateway import GatewaySection
from tests.gateway.table import DOCUMENT, with_table

ROOT = Path(__file__).parents[3]
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_table_of_apis_is_fresh() -> None:
    assert with_table(TEXT) == TEXT, "run: python -m tests.gateway.table"


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_setting_is_explained() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", section("Configuration"), flags=re.MULTILINE))
    assert told == set(GatewaySection.model_fields)


def test_settings_of_topics_are_there() -> None:
    rows = re.findall(r"^\| (`.*?) \|", section("Topics and their settings"), flags=re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(.*?)`", row)}
    assert "retention.ms" in told
    assert told <= CONFIGS.keys()


def test_the_figures_of_conformance_are_those_of_the_lists() -> None:
    lists = [Path("conformance") / f"librdkafka_{name}.txt" for name in ("passing", "failing")]
    passing, failing = (
        sum(bool(line) and not line.startswith("#") for line in (ROOT / path).read_text().splitlines())
        for path in lists
    )
    said = f"of the {passing + failing} tests that need a server, {passing} pass"
    assert said in section("Conformance")
    assert f"{passing} of the {passing + failing} tests" in " ".join((ROOT / "README.md").read_text().split())


def test_the_examples_of_configurations_are_valid() -> None:
    examples = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
    assert examples
    for example in examples:
        parse(example, environ={"ADMIN_PASSWORD": "long enough", "ALICE_PASSWORD": "long enough"})
