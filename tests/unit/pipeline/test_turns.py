"""Starts one after another, and none that is stuck keeps the others waiting for long."""

from __future__ import annotations

import threading
import time

from headgate.pipeline.turns import StartTurns, Turn


def never() -> bool:
    return False


def taken(turns: StartTurns) -> tuple[threading.Thread, list[Turn]]:
    found: list[Turn] = []
    thread = threading.Thread(target=lambda: found.append(turns.take(never)))
    thread.start()
    return thread, found


def test_the_next_start_waits_until_the_one_before_is_over() -> None:
    turns = StartTurns(at_once=1, patience_s=60)
    first = turns.take(never)
    thread, found = taken(turns)
    first.end_if(lambda: False)
    thread.join(0.3)
    assert found == []
    first.end_if(lambda: True)
    thread.join(60)
    assert len(found) == 1


def test_a_start_that_is_stuck_lets_others_pass() -> None:
    turns = StartTurns(at_once=1, patience_s=0.2)
    turns.take(never)
    thread, found = taken(turns)
    thread.join(60)
    assert len(found) == 1


def test_a_turn_that_has_taken_long_is_given_back() -> None:
    turns = StartTurns(at_once=1, patience_s=0.2)
    first = turns.take(never)
    time.sleep(0.3)
    first.end_if(never)
    began = time.monotonic()
    turns.take(never)
    assert time.monotonic() - began < 0.2


def test_a_stop_does_not_wait_for_a_turn() -> None:
    turns = StartTurns(at_once=1, patience_s=600)
    first = turns.take(never)
    turns.take(lambda: True).end()
    thread, found = taken(turns)
    thread.join(0.3)
    assert found == []  # the one that was not waited for had none to give back
    first.end()
    thread.join(60)
    assert len(found) == 1


def test_a_turn_is_given_back_once() -> None:
    turns = StartTurns(at_once=1, patience_s=60)
    first = turns.take(never)
    first.end()
    first.end()
    turns.take(never)
    thread, found = taken(turns)
    thread.join(0.3)
    assert found == []
    turns._free.release()
    thread.join(60)
