"""`headgate broker`, as typed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import psycopg
import pytest
from typer.testing import CliRunner, Result

from headgate.cli.app import app
from headgate.model import ConnectError, StateError, UsageError
from tests.gateway.servers import new_database


@pytest.fixture
def url(template: tuple[str, str]) -> Iterator[str]:
    with new_database(template[0]) as made:
        yield made


def broker(url: str, *arguments: str, **kwargs: str) -> Result:
    return CliRunner().invoke(app, ["broker", *arguments, "--postgres", url], **kwargs)  # type: ignore[arg-type]


def test_from_install_to_uninstall(url: str) -> None:
    assert isinstance(broker(url, "groups").exception, StateError)
    assert "steps" in broker(url, "install").stderr
    assert "nothing to do" in broker(url, "upgrade").stderr
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select headgate.subscribe('mailer')")
    first = broker(url, "publish", "user.created", '{"name": "ann"}')
    assert first.exit_code == 0
    assert int(first.stdout) > 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select headgate.poll_for_events()")
    shown = json.loads(broker(url, "groups", "--json").stdout)
    assert [(row["group_id"], row["subscriptions"], row["behind"] > 0) for row in shown] == [("mailer", 1, True)]
    assert json.loads(broker(url, "subscriptions", "--json").stdout)[0]["conditions_sql"] == "true"
    assert "mailer" in broker(url, "lag").stdout
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select headgate.subscribe('b', '1 = any(array[1])')")
    assert "array[1]" in broker(url, "subscriptions").stdout.replace("\n", "")
    assert broker(url, "replay", "mailer", "0").exit_code == 0
    assert isinstance(broker(url, "replay", "nobody", "0").exception, UsageError)
    assert set(json.loads(broker(url, "maintain", "--json").stdout)) >= {"created", "dropped"}
    assert broker(url, "uninstall", input="n\n").exit_code == 1
    assert "removed" in broker(url, "uninstall", "--yes").stderr
    assert "there is no broker" in broker(url, "uninstall", "--yes").stderr


def test_what_is_parked_is_shown_and_resumed(url: str) -> None:
    broker(url, "install")
    with psycopg.connect(url, autocommit=True, options="-c search_path=headgate") as connection:
        connection.execute("update config set value = '1' where key = 'condition_failures'")
        connection.execute("select subscribe('g', '(e.payload ->> ''n'')::int > 0')")
        connection.execute("select publish_many(array['t', 't'], array['{\"n\": \"x\"}', '{\"n\": 5}']::jsonb[])")
        connection.execute("select poll_for_events()")
        (status,) = json.loads(broker(url, "status", "--json").stdout)
        assert (status["parked"], status["dead_letters"]) == (1, 1)
        assert "subscription 1 of the group g is parked" in status["problem"]
        (parked,) = json.loads(broker(url, "conditions", "parked", "--json").stdout)
        assert (parked["group_id"], parked["behind"]) == ("g", 1)
        assert "goes on" in broker(url, "conditions", "resume", "1").stderr
        connection.execute("select poll_for_events()")
        assert connection.execute("select payload from read_next_events('g')").fetchall() == [({"n": 5},)]
    assert isinstance(broker(url, "conditions", "resume", "1").exception, UsageError)
    assert json.loads(broker(url, "conditions", "parked", "--json").stdout) == []


def test_topics_are_followed(url: str) -> None:
    broker(url, "install")
    found: list[Result] = []
    follower = threading.Thread(target=lambda: found.append(broker(url, "tail", "a", "b", "--count", "2")))
    follower.start()
    with psycopg.connect(url, autocommit=True) as connection:
        query = "select count(*) from headgate.subscriptions"
        while connection.execute(query).fetchone() != (1,):  # only what comes later is followed
            assert follower.is_alive(), found
        for topic in ("a", "c", "b"):  # by SQL: two commands at once would share one standard output
            connection.execute("select headgate.publish(%s, to_jsonb(%s::text))", [topic, topic])
    follower.join(30)
    assert [json.loads(line)["payload"] for line in found[0].stdout.splitlines()] == ["a", "b"]


def test_what_is_wrong_is_said(url: str) -> None:
    broker(url, "install")
    assert isinstance(broker(url, "publish", "t", "{").exception, UsageError)
    assert isinstance(broker("postgres://nobody@127.0.0.1:1/x", "groups").exception, ConnectError)
    assert isinstance(broker(url, "install", "--schema", "Big Name").exception, UsageError)
