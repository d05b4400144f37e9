"""Which rule counts when several could."""

from __future__ import annotations

import pickle

import pytest

from headgate.model.address import Address
from headgate.pipeline.routing.rules import Choice, Keys, Lookup, Rules

COLUMNS = Rules(
    by_table={"public.orders": Address("shop", "orders"), "public.bare": Address("", "bare")},
    by_stream_column="tenant",
    by_topic_column="kind",
    default_stream="rest",
    default_topic="other",
)


@pytest.mark.parametrize(
    ("keys", "destination", "rule"),
    [
        (Keys(stream="s", topic="t"), Address("s", "t"), "columns"),
        (Keys("public", "orders", "s", "t"), Address("s", "t"), "columns, by_table"),
        (Keys("public", "orders", None, "t"), Address("shop", "t"), "columns, by_table"),
        (Keys("public", "orders", "s", None), Address("s", "orders"), "columns, by_table"),
        (Keys("public", "orders"), Address("shop", "orders"), "by_table"),
        (Keys("public", "bare"), Address("rest", "bare"), "by_table"),
        (Keys("other", "orders"), Address("rest", "other"), "default"),
        (Keys(stream="s"), Address("s", "other"), "columns, default_topic"),
        (Keys(topic="t"), Address("rest", "t"), "columns"),
        (Keys(stream="", topic=""), Address("rest", "other"), "default"),
        (Keys(), Address("rest", "other"), "default"),
    ],
)
def test_a_column_wins_over_the_table_and_that_over_the_default(keys: Keys, destination: Address, rule: str) -> None:
    assert COLUMNS.choose(keys) == Choice((destination,), rule, by_default="default" in rule)


def test_without_the_default_a_row_may_go_nowhere() -> None:
    rules = Rules(by_topic_column="kind", default_topic="other", use_default=False)
    assert rules.choose(Keys(topic="t")).destinations == (Address("", "t"),)
    assert rules.choose(Keys()).is_missing
    assert rules.choose(Keys(stream="s")).is_missing


def routes(*stops: bool, default: str | None = None) -> Rules:
    mappings = [
        {"a": (Address("", "x"), Address("", "y")), "b": (Address("", "x"),)},
        {"a": (Address("", "x"), Address("", "z")), "c": (Address("s", "w"),)},
    ]
    lookups = tuple(Lookup(m, stop, f"f{n}") for n, (m, stop) in enumerate(zip(mappings, stops, strict=True)))
    return Rules(lookups=lookups, default_topic=default)


@pytest.mark.parametrize(
    ("stops", "values", "topics"),
    [
        ((True, True), ("a", "a"), ["x", "y"]),
        ((False, True), ("a", "a"), ["x", "y", "z"]),
        ((False, False), ("b", "c"), ["x", "w"]),
        ((True, True), ("nobody", "a"), ["x", "z"]),
        ((True, True), (None, "c"), ["w"]),
        ((True, True), ("nobody", None), ["rest"]),
    ],
)
def test_the_first_route_or_all(stops: tuple[bool, ...], values: tuple[str | None, ...], topics: list[str]) -> None:
    choice = routes(*stops, default="rest").choose(Keys(values=values))
    assert [wanted.topic for wanted in choice.destinations] == topics
    assert list(choice.destinations) == sorted(set(choice.destinations))


def test_a_rule_is_named_for_people() -> None:
    assert routes(False, True).choose(Keys(values=("a", "a"))).rule == "route f0 = a, route f1 = a"
    assert routes(True, True).choose(Keys(values=("q", "q"))) == Choice((), "no route matches")
    assert routes(True, True, default="rest").choose(Keys(values=("q", "q"))).rule == "default"


def test_rules_travel() -> None:
    assert pickle.loads(pickle.dumps(COLUMNS)) == COLUMNS
