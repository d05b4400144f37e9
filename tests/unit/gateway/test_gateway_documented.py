"""docs/gateway.md says what is so."""

from __future__ import annotations

import re

from headgate.config import parse
from headgate.config.gateway import GatewaySection
from tests.gateway.table import DOCUMENT, with_table

TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_table_of_apis_is_fresh() -> None:
    assert with_table(TEXT) == TEXT, "run: python -m tests.gateway.table"


def test_every_setting_is_explained() -> None:
    told = set(re.findall(r"^\| `(?!headgate_)(\w+)` \|", TEXT, flags=re.MULTILINE))
    assert told == set(GatewaySection.model_fields)


def test_the_examples_of_configurations_are_valid() -> None:
    examples = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
    assert examples
    for example in examples:
        parse(example, environ={"ALICE_PASSWORD": "long enough"})
