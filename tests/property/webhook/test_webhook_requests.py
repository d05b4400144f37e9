"""Requests of the destination: no topic leads elsewhere, and every row is in exactly one request."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.destinations.webhook import WebhookOptions
from headgate.destinations.webhook.attempt import _retry_after
from headgate.destinations.webhook.requests import by_topic, posts
from headgate.model import ConfigError, DataError, record

hostile = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["../x", "a/b", "//evil", "@evil", "?a=b", "#f", "\r\nHost: evil", "%2e%2e", "{stream}", "\x00"]),
)


@given(hostile, hostile)
def test_a_topic_stays_one_part_of_the_path(stream: str, topic: str) -> None:
    options = WebhookOptions(url="https://user:pw@host.example:8443/in/{stream}/x-{topic}/end?t={topic}&k=1")
    try:
        sent = httpx.URL(options.target(stream, topic))
    except DataError:
        assert stream in ("", ".", "..")
        return
    assert (sent.scheme, sent.host, sent.port, sent.fragment) == ("https", "host.example", 8443, "")
    parts = urlsplit(str(sent)).path.split("/")
    assert [unquote(part) for part in parts] == ["", "in", stream, f"x-{topic}", "end"]
    assert sent.params.multi_items() == [("t", topic), ("k", "1")]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**30)), max_size=30),
    st.integers(1, 5),
    st.integers(1, 80),
)
def test_every_row_is_in_one_request_in_order(rows: list[tuple[str, int]], most: int, most_bytes: int) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            record.TOPIC: pa.array([topic for topic, _ in rows], pa.string()),
            record.MESSAGE_ID: pa.array([f"é{n}" for n in range(len(rows))], pa.string()),
            record.PAYLOAD: pa.array([json.dumps(value).encode() for _, value in rows], pa.binary()),
        }
    )
    options = WebhookOptions(url="http://h/", batch_rows=most, max_batch_bytes=most_bytes)
    found: dict[str, list[int]] = {}
    for group in by_topic(batch):
        for post in posts(group.rows, options):
            values = json.loads(post.body) if most > 1 else [json.loads(post.body)]
            assert 1 <= post.rows == len(values) <= most
            assert post.rows == 1 or sum(len(str(value)) for value in values) <= most_bytes
            assert post.message_id.isascii()
            found.setdefault(group.topic, []).extend(values)
    assert found == {name: [v for topic, v in rows if topic == name] for name in {topic for topic, _ in rows}}


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://h/"},
        {"url": "http:///x"},
        {"url": "http://{topic}.example/"},
        {"url": "http://h:99999/"},
        {"url": "http://[::1/"},
        {"url": "http://h/{column}"},
        {"url": "http://h/#x"},
        {"url": "http://h/", "headers": {"a b": "c"}},
        {"url": "http://h/", "headers": {"a": "b\r\nc: d"}},
        {"url": "http://h/", "headers": {"Host": "evil"}},
        {"url": "http://h/", "batch_rows": 0},
        {"url": "http://h/", "retry_for_s": -1},
        {"url": "http://h/", "batch_format": "xml"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        WebhookOptions(**options)
    assert caught.value.remedy


def test_nothing_secret_is_shown() -> None:
    options = WebhookOptions(url="https://u:hidden1@h/hidden2?k=hidden3", headers={"X": "hidden4"})
    assert "hidden" not in repr(options)
    assert "https://h" in repr(options)


@given(st.text(max_size=30))
def test_any_retry_after_is_a_time_or_none(text: str) -> None:
    found = _retry_after(text)
    assert found is None or found >= 0


def test_retry_after_may_be_a_date() -> None:
    assert _retry_after("7") == 7
    assert _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    far = _retry_after("Wed, 21 Oct 2099 07:28:00 -0000")
    assert far is not None
    assert far > 10**9
