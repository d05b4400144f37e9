"""The joining rules against a model of PostgreSQL: transactions that begin, end and are seen or not."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headgate.consume.rules import ExportRule, FilterRule, full_xid

EPOCH = 1 << 32


@dataclass
class History:
    """Transactions in commit order as (64-bit xid, commit LSN), and a snapshot somewhere among them."""

    commits: list[tuple[int, int]]
    visible: set[int]
    xmin: int
    xmax: int
    xip: list[int]
    lsn: int


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Ids are given at a transaction's beginning, so commits come in any order among those that overlap."""
    first = draw(st.sampled_from([3, EPOCH - 4, EPOCH + 1, 7 * EPOCH - 2]))
    running: list[int] = []
    commits: list[tuple[int, int]] = []
    snapshot: History | None = None
    next_xid, lsn = first, 1000
    for action in draw(st.lists(st.sampled_from(["begin", "commit", "abort", "snapshot"]), min_size=1, max_size=40)):
        lsn += draw(st.integers(1, 9))
        if action == "begin":
            running.append(next_xid)
            next_xid += 1
        elif action == "snapshot" and snapshot is None:
            snapshot = History(
                commits, {xid for xid, _ in commits}, min(running, default=next_xid), next_xid, list(running), lsn
            )
        elif running and action in ("commit", "abort"):
            xid = running.pop(draw(st.integers(0, len(running) - 1)))
            if action == "commit":
                commits.append((xid, lsn))
    return snapshot or History(
        commits, {x for x, _ in commits}, min(running, default=next_xid), next_xid, running, lsn + 1
    )


@given(histories())
def test_what_the_snapshot_saw_is_left_out_and_nothing_else(history: History) -> None:
    by_xid = FilterRule(history.xmin, history.xmax, history.xip, history.lsn)
    by_lsn = ExportRule(history.lsn)
    for rule in (by_xid, by_lsn):
        for xid, lsn in history.commits:
            assert rule.contains(lsn, xid % EPOCH) is (xid in history.visible)


@given(histories())
def test_a_rule_that_is_over_would_contain_nothing_more(history: History) -> None:
    for rule in (FilterRule(history.xmin, history.xmax, history.xip, history.lsn), ExportRule(history.lsn)):
        over = False
        for xid, lsn in history.commits:
            over = over or rule.is_over(lsn, xid % EPOCH)
            if over:
                assert xid not in history.visible


@st.composite
def hanging_histories(draw: st.DrawFn) -> History:
    """A commit is in the stream as soon as it is on disk, and visible when its standby has answered: in any order."""
    first = draw(st.sampled_from([3, EPOCH - 4, 7 * EPOCH - 2]))
    running: list[int] = []
    hanging: list[int] = []
    commits: list[tuple[int, int]] = []
    completed = first - 1
    next_xid, lsn = first, 1000
    snapshot: History | None = None
    for action in draw(st.lists(st.sampled_from(["begin", "flush", "show", "snapshot"]), min_size=1, max_size=40)):
        lsn += draw(st.integers(1, 9))
        if action == "begin":
            running.append(next_xid)
            next_xid += 1
        elif action == "flush" and running:
            hanging.append(running.pop(draw(st.integers(0, len(running) - 1))))
            commits.append((hanging[-1], lsn))
        elif action == "show" and hanging:
            completed = max(completed, hanging.pop(draw(st.integers(0, len(hanging) - 1))))
        elif action == "snapshot" and snapshot is None:
            xip = sorted(xid for xid in running + hanging if xid <= completed)
            visible = {xid for xid, _ in commits if xid not in hanging}
            snapshot = History(commits, visible, min(xip, default=completed + 1), completed + 1, xip, lsn)
    return snapshot or History([], set(), first, first, [], lsn)


@given(hanging_histories())
def test_commits_that_hang_are_told_from_those_that_are_seen(history: History) -> None:
    rule = FilterRule(history.xmin, history.xmax, history.xip, history.lsn)
    over = False
    for xid, lsn in history.commits:
        assert rule.contains(lsn, xid % EPOCH) is (xid in history.visible)
        over = over or rule.is_over(lsn, xid % EPOCH)
        assert not (over and xid in history.visible)


@given(st.integers(EPOCH, 1 << 62), st.integers(-(1 << 31) + 1, (1 << 31) - 1))
def test_an_xid_gets_the_epoch_that_brings_it_nearest(near: int, distance: int) -> None:
    assert full_xid((near + distance) % EPOCH, near) == near + distance
