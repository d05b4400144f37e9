"""The collection index: both directions agree, pages do not overlap, and an account can be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.demo.network.repository import Repository, create, delete
from headgate.model import OccupiedError
from headgate.relay.collections import CollectionIndex
from headgate.wire.atproto import Account, read_event, read_frame

DIDS = ["did:plc:a", "did:plc:aa", "did:plc:b", "did:web:a.example"]
NAMES = ["app.bsky.feed.like", "app.bsky.feed.like.more", "app.bsky.feed.post"]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[CollectionIndex]:
    opened = CollectionIndex(tmp_path / "index", known=3)
    yield opened
    opened.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.sampled_from(DIDS), st.none() | st.lists(st.sampled_from(NAMES)))),
    count=st.integers(1, 4),
)
def test_it_is_a_set_of_pairs_read_from_both_sides(
    index: CollectionIndex, steps: list[tuple[str, list[str] | None]], count: int
) -> None:
    for did in DIDS:
        index.remove(did)
    pairs: set[tuple[str, str]] = set()
    for did, names in steps:
        if names is None:
            index.remove(did)
            pairs = {pair for pair in pairs if pair[0] != did}
        else:
            assert index.add(did, names) == len({(did, name) for name in names} - pairs)
            pairs |= {(did, name) for name in names}
    for name in NAMES:
        assert pages(index, name, count) == sorted(did for did, one in pairs if one == name)
    for did in DIDS:
        assert index.collections(did) == sorted(name for one, name in pairs if one == did)


def pages(index: CollectionIndex, name: str, count: int) -> list[str]:
    found: list[str] = []
    while page := index.dids(name, found[-1] if found else "", count):
        assert len(page) <= count
        found += page
    return found


def test_it_follows_the_stream(index: CollectionIndex) -> None:
    repo = Repository("alice", "pds.example")
    path = "app.bsky.feed.post/3kaaaaaaaaa22"
    first = repo.commit([create(path, {"text": "hi"}), create("app.bsky.feed.like/x", {})], seq=1, now_us=1)
    second = repo.commit([delete(path)], seq=2, now_us=2)
    for frame in (first, second):
        index.track(read_event(read_frame(frame)))
    assert index.collections(repo.did) == ["app.bsky.feed.like", "app.bsky.feed.post"]
    index.track(Account(repo.did, 3, "", False, "deactivated"))
    assert index.dids("app.bsky.feed.post") == [repo.did]
    index.track(Account(repo.did, 4, "", False, "deleted"))
    assert index.dids("app.bsky.feed.post") == []
    assert index.collections(repo.did) == []


def test_it_is_there_again_when_opened_again_and_belongs_to_one(tmp_path: Path) -> None:
    first = CollectionIndex(tmp_path)
    first.add(DIDS[0], NAMES)
    with pytest.raises(OccupiedError):
        CollectionIndex(tmp_path)
    first.close()
    second = CollectionIndex(tmp_path)
    assert second.collections(DIDS[0]) == sorted(NAMES)
    second.close()
