"""Patterns of topics: what they match, that they are looked up, and that nobody can make looking up slow."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.broker import Subscription
from headgate.broker.memory import _matches
from tests.integration.broker.brokers import Headgate, drain
from tests.integration.broker.conftest import Connect
from tests.integration.broker.servers import every_server

CONDITION = Subscription.to_patterns("t").condition
WORDS = st.lists(st.sampled_from(["a", "b", "*", ">", "", "é"]), min_size=1, max_size=4).map(".".join).filter(len)


def payloads(broker: Headgate, group: str) -> list[Any]:
    return [event.payload for event in drain(broker, group)]


@given(topic=WORDS, pattern=WORDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
def test_sql_and_python_agree(shared_db: psycopg.Connection[Any], topic: str, pattern: str) -> None:
    query = "select topic_matches(%s, jsonb_build_array(%s::text))"
    assert shared_db.execute(query, [topic, pattern]).fetchall() == [(_matches(topic, pattern),)]


@every_server
def test_events_go_to_whose_patterns_match(db: psycopg.Connection[Any]) -> None:
    """Once, also if two patterns match; also with another condition behind; and not after the subscription's end."""
    ours = Headgate(db)
    for group, patterns in {"one": ["a.*", "*.b", "a.b"], "rest": ["a.>"], "all": [">"], "none": ["x.*"]}.items():
        db.execute("select subscribe(%s, %s, %s)", [group, CONDITION, psycopg.types.json.Jsonb({"patterns": patterns})])
    both = f"{CONDITION} and (e.payload ->> 'n')::int > 1"
    db.execute("select subscribe('big', %s, '{\"patterns\": [\"a.*\"]}')", [both])
    for number, topic in enumerate(["a.b", "a.c.d", "a", "a.b"]):
        db.execute("select publish(%s, jsonb_build_object('n', %s::int))", [topic, number])
    db.execute("select poll_for_events_v1()")

    def numbers(group: str) -> list[int]:
        return [payload["n"] for payload in payloads(ours, group)]

    assert numbers("one") == [0, 3]
    assert numbers("rest") == [0, 1, 3]
    assert numbers("all") == [0, 1, 2, 3]
    assert numbers("none") == []
    assert numbers("big") == [3]
    db.execute("select count(unsubscribe(id)) from subscriptions")
    db.execute("select maintain()")
    assert db.execute("select (select count(*) from topic_shapes), count(*) from subscription_patterns").fetchall() == [
        (0, 0)
    ]


def test_a_shape_is_kept_for_who_is_subscribing(db: psycopg.Connection[Any], connect: Connect) -> None:
    """Maintenance does not take it away from under a subscription that is not committed yet."""
    ours = Headgate(db)
    db.execute("select subscribe('old', %s, '{\"patterns\": [\"a.*\"]}')", [CONDITION])
    db.execute("select count(unsubscribe(id)) from subscriptions")
    other = connect(autocommit=False)
    other.execute("select subscribe('new', %s, '{\"patterns\": [\"a.*\"]}')", [CONDITION])
    db.execute("select maintain()")
    other.commit()
    db.execute("select maintain()")
    db.execute("select publish('a.b', '1')")
    db.execute("select poll_for_events_v1()")
    assert payloads(ours, "new") == [1]


@pytest.mark.parametrize("params", ["{}", '{"patterns": "a.*"}', '{"patterns": [1]}', '{"patterns": [""]}'])
def test_what_is_no_pattern_is_refused(db: psycopg.Connection[Any], params: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="array of texts"):
        db.execute("select subscribe('g', %s, %s)", [CONDITION, params])


@every_server
def test_many_patterns_and_topics_are_looked_up(db: psycopg.Connection[Any]) -> None:
    """Thousands of patterns cost about what ten do; and shapes, which cost, are limited."""
    db.execute(
        "select count(subscribe('g' || n %% 50, %s, jsonb_build_object('patterns', array['a' || n || '.*'])))"
        " from generate_series(1, 3000) as n",
        [CONDITION],
    )
    many = (
        "select count(publish_v1) from publish_v1("
        " (select array_agg('a' || n || '.b' order by n) from generate_series(1, 2000) as n),"
        " (select array_agg('1'::jsonb) from generate_series(1, 2000) as n))"
    )
    db.execute(many.encode())
    assert db.execute("select dispatched, delivered from poll_for_events_v1()").fetchall() == [(2000, 2000)]
    plan = "\n".join(
        line
        for (line,) in db.execute(
            "explain select * from subscription_patterns where pattern = pattern_of('a.b', 'w.*')"
        ).fetchall()
    )
    assert "Index" in plan
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="shapes"):
        db.execute(
            "select count(subscribe('h', %s, jsonb_build_object('patterns', array[repeat('*.', n) || 'a'])))"
            " from generate_series(1, 70) as n",
            [CONDITION],
        )
