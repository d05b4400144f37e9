"""Bodies become rows: JSON by its elements, lines by lines, the rest as it is; a wrong one is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sources.webhook.auth import fingerprint, public_headers
from headgate.sources.webhook.bodies import BadBodyError, split_body

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)
content_types = st.sampled_from(
    ["application/json", "application/vnd.x+json; charset=utf-8", "application/x-ndjson", "text/plain", "", ";", "é"]
)


def split(content_type: str, body: bytes, *, text: bool = True, most: int = 100) -> list[bytes]:
    return split_body(content_type, body, text=text, max_events=most)


@given(st.lists(values, max_size=6), st.sampled_from([None, 1]), st.booleans())
def test_an_array_is_its_elements(events: list[object], indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(events, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    assert [json.loads(event) for event in split("application/json", body)] == json.loads(body)


@given(values.filter(lambda value: not isinstance(value, list)))
def test_one_value_stays_as_it_came(event: object) -> None:
    body = b" \n" + json.dumps(event).encode() + b" "
    assert split("Application/JSON; charset=utf-8", body) == [body]


@given(st.lists(values, max_size=6), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_lines_are_events(events: list[object], end: str) -> None:
    body = end.join(json.dumps(event) for event in events).encode()
    assert [json.loads(line) for line in split("application/x-ndjson", body)] == events


@given(content_types, st.binary(max_size=60), st.booleans())
def test_any_bytes_are_rows_or_refused(content_type: str, body: bytes, text: bool) -> None:
    try:
        events = split(content_type, body, text=text)
    except BadBodyError:
        return
    if text:
        assert b"".join(events).decode() is not None
    if content_type == "text/plain":
        assert events == [body]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b""),
        ("application/json", b'{"a":'),
        ("application/json", b"[1,]"),
        ("application/json", b"[" * 100_000),
        ("application/json", b'{"a":' * 100_000),
        ("application/json", b'"\xff"'),
        ("application/x-ndjson", b"1\n{\n"),
        ("text/plain", b"\xff"),
        ("application/json", json.dumps(list(range(101))).encode()),
        ("application/x-ndjson", b"1\n" * 101),
    ],
)
def test_wrong_bodies_are_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(BadBodyError):
        split(content_type, body)


def test_binary_takes_any_bytes() -> None:
    assert split("application/octet-stream", b"\xff\x00", text=False) == [b"\xff\x00"]


@given(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), st.text(min_size=1, max_size=9))
def test_a_key_belongs_to_its_client_and_path(client: str, other: str, path: str, key: str) -> None:
    assert (fingerprint(key, client, path) == fingerprint(key, other, path)) == (client == other)
    assert (fingerprint(key, client, path) == fingerprint(key, client, path + other)) == (other == "")
    assert fingerprint("", client, path) == b""


def test_secrets_stay_out_of_rows() -> None:
    hidden = ["authorization", "proxy-authorization", "cookie", "x-api-key", "x-gitlab-token", "stripe-signature"]
    hidden += ["x-hub-signature-256", "webhook-signature", "x-own"]
    kept = {"x-github-event": "push", "content-type": "a/b", "idempotency-key": "1"}
    assert public_headers(dict.fromkeys(hidden, "s") | kept, "X-Own") == kept
