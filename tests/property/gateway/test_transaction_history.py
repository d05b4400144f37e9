"""The checker of transactions finds what is wrong, and nothing where all is well."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.transactions import Transaction, TransactionHistory, check_copies, check_transactions

Log = dict[int, list[tuple[int, str]]]


def run(seed: int, count: int) -> tuple[TransactionHistory, Log]:
    """Two producers and a consumer of a log that behaves; one transaction of each kind at least."""
    dice = random.Random(seed)
    history, log, ends = TransactionHistory(), Log({0: [], 1: [], 2: []}), dict.fromkeys(range(3), 0)
    kinds = ["committed", "committed", "aborted", *dice.choices(["committed", "aborted", "unknown"], k=count)]
    for number, ended in enumerate(kinds):
        producer = dice.choice("ab") if number > 2 else "a"
        places = [0, 1, 2, *dice.choices(range(3), k=3)]
        values = tuple((partition, f"{producer}{number}-{at}") for at, partition in enumerate(places))
        is_there = ended == "committed" or (ended == "unknown" and dice.random() < 0.5)
        for partition, value in values:
            if is_there:
                log[partition].append((ends[partition], value))
            ends[partition] += 1  # aborted ones have offsets, too
        history.done[producer].append(Transaction(values, ended))  # type: ignore[arg-type]
    for partition, messages in log.items():
        history.seen["c"] += [(partition, offset, value) for offset, value in messages]
    return history, log


histories = st.builds(run, st.integers(0, 2**32), st.integers(0, 30))


@given(histories)
def test_a_log_that_behaves_has_no_anomalies(made: tuple[TransactionHistory, Log]) -> None:
    history, log = made
    assert check_transactions(history, log) == []
    assert check_copies(log, log) == []


def lose(history: TransactionHistory, log: Log) -> None:
    gone = {value for _, value in history.done["a"][0].values}
    for partition in log:
        log[partition] = [each for each in log[partition] if each[1] not in gone]


def break_apart(history: TransactionHistory, log: Log) -> None:
    log[0] = [each for each in log[0] if each[1] != history.done["a"][0].values[0][1]]


def resurrect(history: TransactionHistory, log: Log) -> None:
    for partition, value in history.done["a"][2].values:
        log[partition].append((10**6 + len(log[partition]), value))


def double(history: TransactionHistory, log: Log) -> None:
    log[0].append((10**6, log[0][0][1]))


def swap(history: TransactionHistory, log: Log) -> None:
    (first, one), (second, other) = log[0][0], log[0][-1]
    log[0][0], log[0][-1] = (first, other), (second, one)


def show_what_is_aborted(history: TransactionHistory, log: Log) -> None:
    history.seen["c"].append((0, 10**6, history.done["a"][2].values[0][1]))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lose, "lost"),
        (break_apart, "fractured"),
        (resurrect, "aborted read"),
        (double, "doubled"),
        (show_what_is_aborted, "aborted read"),
    ],
)
@given(made=histories)
def test_each_fault_is_found(
    fault: Callable[[TransactionHistory, Log], None], kind: str, made: tuple[TransactionHistory, Log]
) -> None:
    history, log = made
    fault(history, log)
    assert kind in {anomaly.kind for anomaly in check_transactions(history, log)}


@given(histories)
def test_another_order_is_found(made: tuple[TransactionHistory, Log]) -> None:
    history, log = made
    (_, one), (_, other) = log[0][0], log[0][-1]
    swap(history, log)
    if one[0] == other[0] and one != other:  # of one producer
        assert "reordered" in {anomaly.kind for anomaly in check_transactions(history, log)}


@given(histories)
def test_copies_that_are_not_are_found(made: tuple[TransactionHistory, Log]) -> None:
    _, log = made
    copies = {partition: list(messages) for partition, messages in log.items()}
    copies[1].append(copies[0].pop())
    assert check_copies(log, copies) == [], "where a copy lies does not matter"
    lost = copies[1].pop()
    assert [anomaly.kind for anomaly in check_copies(log, copies)] == ["not copied"]
    copies[1] += [lost, lost]
    assert [anomaly.kind for anomaly in check_copies(log, copies)] == ["copied twice"]
