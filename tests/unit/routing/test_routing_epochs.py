"""Epochs rise when routes change, and only then, across processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.model import StateError
from headgate.model.address import Address
from headgate.pipeline.routing.epochs import EpochFile
from headgate.pipeline.routing.rules import Lookup, Rules

ROUTES = Rules(lookups=(Lookup({"b": (Address("", "x"),), "a": (Address("s", "y"),)}),), default_topic="rest")


def test_an_epoch_belongs_to_its_routes(tmp_path: Path) -> None:
    path = tmp_path / "p" / "routes.json"
    assert EpochFile(path).number(ROUTES).epoch == 1
    same = Rules(lookups=(Lookup({"a": (Address("s", "y"),), "b": (Address("", "x"),)}),), default_topic="rest")
    assert EpochFile(path).number(replace(same, epoch=9)) == replace(ROUTES, epoch=1)
    changed = replace(ROUTES, default_topic="other")
    assert [EpochFile(path).number(each).epoch for each in (changed, changed, ROUTES, changed)] == [2, 2, 3, 4]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"epoch": "x", "routes": ""}'])
def test_an_epoch_that_cannot_be_read_is_not_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "routes.json").write_text(text)
    with pytest.raises(StateError) as told:
        EpochFile(tmp_path / "routes.json").number(ROUTES)
    assert "routes.json" in str(told.value)
