"""Starts one after another, and none that is stuck keeps the others waiting for long."""

from __future__ import annotations

import threading

from headgate.pipeline.turns import StartTurns


def test_the_next_start_waits_until_the_one_before_is_over() -> None:
    turns, over, second = StartTurns(at_once=1, patience_s=60), threading.Event(), threading.Event()

    def first() -> None:
        with turns.take(over.is_set):
            begun.set()

    def next_one() -> None:
        with turns.take(lambda: True):
            second.set()

    begun = threading.Event()
    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert begun.wait(60)
    threads.append(threading.Thread(target=next_one))
    threads[1].start()
    assert not second.wait(0.3)
    over.set()
    assert second.wait(60)
    for thread in threads:
        thread.join()


def test_a_start_that_is_stuck_lets_others_pass() -> None:
    turns, stuck, done = StartTurns(at_once=1, patience_s=0.2), threading.Event(), threading.Event()

    def first() -> None:
        with turns.take(lambda: True):
            begun.set()
            done.wait(60)  # in the block itself

    begun = threading.Event()
    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(60)
    with turns.take(lambda: True):
        stuck.set()
    assert stuck.is_set()
    done.set()
    thread.join()


def test_a_start_that_fails_gives_its_turn_back() -> None:
    turns = StartTurns(at_once=1, patience_s=60)
    for _ in range(3):
        try:
            with turns.take(lambda: False):
                raise ValueError
        except ValueError:
            pass
    with turns.take(lambda: True):
        pass
