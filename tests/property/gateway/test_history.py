"""The checker of histories finds what is wrong, and nothing where all is well."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.history import History, check

Log = dict[int, list[tuple[int, str]]]


def run(seed: int, messages: int, partitions: int) -> tuple[History, Log]:
    """Two producers and two consumers of a log that behaves."""
    dice = random.Random(seed)
    history, log = History(), Log({partition: [] for partition in range(partitions)})
    for number in range(messages):
        producer, partition = dice.choice("ab"), dice.randrange(partitions)
        value, outcome = f"{producer}{number}", dice.choice(["ok", "ok", "ok", "refused", "unknown"])
        offset = len(log[partition])
        if outcome == "ok" or (outcome == "unknown" and dice.random() < 0.5):
            log[partition].append((offset, value))
        history.produced(producer, value, partition, outcome, offset if outcome == "ok" else None)  # type: ignore[arg-type]
    for consumer, share in (("c", 0), ("d", 1)):
        for partition in range(share, partitions, 2):
            history.assigned(consumer, [partition])
            half = dice.randint(0, len(log[partition]))
            for offset, value in log[partition][:half]:
                history.polled(consumer, partition, offset, value)
            history.assigned(consumer, [partition])  # it starts again from an older commit
            for offset, value in log[partition][max(0, half - 2) :]:
                history.polled(consumer, partition, offset, value)
    return history, log


histories = st.builds(run, st.integers(0, 2**32), st.integers(20, 80), st.integers(1, 4))


@given(histories)
def test_a_log_that_behaves_has_no_anomalies(made: tuple[History, Log]) -> None:
    assert check(*made, exactly_once=True) == []


def acknowledged(history: History, log: Log) -> tuple[int, int]:
    """Where an acknowledged message lies that has another after it."""
    told = {(s.partition, s.offset) for sent in history.sent.values() for s in sent if s.outcome == "ok"}
    return next((p, o) for p in log for o in range(len(log[p]) - 1) if (p, o) in told)


def lose(history: History, log: Log) -> None:
    partition, offset = acknowledged(history, log)
    log[partition] = [(n, v) for n, (_, v) in enumerate(m for m in log[partition] if m[0] != offset)]


def repeat(history: History, log: Log) -> None:
    partition, offset = acknowledged(history, log)
    log[partition].append((len(log[partition]), log[partition][offset][1]))


def swap(history: History, log: Log) -> None:
    messages = next(m for m in log.values() if len(m) > 1)
    pair = next((i for i in range(len(messages) - 1) if messages[i][1][0] == messages[i + 1][1][0]), 0)
    first, second = messages[pair], messages[pair + 1]
    messages[pair], messages[pair + 1] = (first[0], second[1]), (second[0], first[1])


def show_refused(history: History, log: Log) -> None:
    refused = next(s for sent in history.sent.values() for s in sent if s.outcome == "refused")
    log[refused.partition].append((len(log[refused.partition]), refused.value))


def go_back(history: History, log: Log) -> None:
    seen = next(seen for seen in history.seen.values() if len(seen) > 2)
    seen.append(seen[-1])


def skip(history: History, log: Log) -> None:
    offset = len(log[0])
    log[0] += [(offset, "x"), (offset + 1, "y")]
    history.polled("c", 0, offset - 1, log[0][offset - 1][1])
    history.seen["c"].pop()
    history.assigned("e", [0])
    history.polled("e", 0, offset - 1, log[0][offset - 1][1])
    history.polled("e", 0, offset + 1, "y")


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lose, "lost"),
        (repeat, "duplicated"),
        (swap, "misplaced"),
        (show_refused, "aborted read"),
        (go_back, "non-monotonic poll"),
        (skip, "skipped"),
        (skip, "unseen"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_damage_is_found(damage: object, kind: str, seed: int) -> None:
    history, log = run(seed, 60, 2)
    damage(history, log)  # type: ignore[operator]
    assert kind in {anomaly.kind for anomaly in check(history, log, exactly_once=True)}


def test_reordering_is_found() -> None:
    history = History()
    history.produced("a", "first", 0, "ok")
    history.produced("a", "second", 0, "ok")
    log: Log = {0: [(0, "second"), (1, "first")]}
    assert [anomaly.kind for anomaly in check(history, log, exactly_once=True)] == ["reordered"]


def test_a_gap_is_found() -> None:
    assert check(History(), {0: [(0, "a"), (2, "b")]}, exactly_once=True)[0].kind == "gap"
