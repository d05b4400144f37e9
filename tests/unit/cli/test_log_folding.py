"""Log lines that repeat are folded, and say how often they came."""

from __future__ import annotations

import io
import json
import logging

import pytest

from headgate.control.folding import FoldingFilter
from headgate.control.logs import configure_logs
from tests.conftest import pytest_runtest_protocol


class Clock:
    """Time as the test tells it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Lines(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def told(self) -> list[tuple[str, int, str]]:
        return [
            (each.getMessage(), getattr(each, "repeated", 0), getattr(each, "repeats", "")) for each in self.records
        ]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> Lines:
    handler = Lines()
    handler.addFilter(FoldingFilter(handler, clock))
    return handler


def say(lines: Lines, text: str, level: int = logging.WARNING, **fields: object) -> None:
    lines.handle(logging.makeLogRecord({"name": "n", "levelno": level, "msg": text, **fields}))


def test_a_line_that_repeats_every_second_is_told_once_a_minute(lines: Lines, clock: Clock) -> None:
    for second in range(130):
        clock.now = float(second)
        say(lines, "no server", attempt=second)
    assert lines.told() == [("no server", 0, ""), ("no server", 60, ""), ("no server", 60, "")]


def test_the_end_of_it_is_told_with_what_was_not_shown(lines: Lines, clock: Clock) -> None:
    for second in range(10):
        clock.now = float(second)
        say(lines, "no server")
    clock.now = 100.0
    say(lines, "something else")
    assert lines.told() == [("no server", 0, ""), ("no server", 9, "ended"), ("something else", 0, "")]
    clock.now = 101.0
    say(lines, "no server")
    assert lines.told()[-1] == ("no server", 0, "")


def test_lines_that_differ_in_words_are_all_shown(lines: Lines) -> None:
    say(lines, "batch failed", error={"message": "full", "kind": "capacity"})
    say(lines, "batch failed", error={"message": "gone", "kind": "delivery"})
    say(lines, "batch failed", error={"message": "gone", "kind": "delivery"}, level=logging.ERROR)
    say(lines, "schema published", table="a")
    say(lines, "schema published", table="b")
    assert len(lines.records) == 5


def test_the_periodic_line_is_never_folded(lines: Lines) -> None:
    for _ in range(3):
        say(lines, "METRICS", logging.INFO, rows=1)
    assert len(lines.records) == 3


def test_lines_with_ever_new_words_do_not_fill_memory(lines: Lines) -> None:
    for number in range(3000):
        say(lines, f"line {number}")
    assert len(lines.records) == 3000


def test_a_record_that_cannot_be_compared_is_let_through_and_nothing_is_raised() -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no disk")

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
            failed.append(record.msg)

    class Odd:
        def __str__(self) -> str:
            raise ValueError("no words")

    failed: list[str] = []
    clock = [0.0]
    folding = FoldingFilter(Handler(), lambda: clock[0])
    bad: list[dict[str, object]] = [{"msg": "%d", "args": ("x",)}, {"msg": "odd", "field": Odd()}]
    assert [folding.filter(logging.makeLogRecord(each)) for each in bad] == [True, True]
    assert [folding.filter(logging.makeLogRecord({"msg": "away"})) for _ in range(2)] == [True, False]
    clock[0] = 3600.0
    assert folding.filter(logging.makeLogRecord({"msg": "back"}))  # tells that "away" has ended
    assert failed == ["away"]


def test_configured_logs_fold() -> None:
    root, stream = logging.getLogger(), io.StringIO()
    configure_logs("info", "json", stream)
    for number in range(5):
        root.warning("no server", extra={"attempt": number})
    root.info("back")
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == ["no server", "back"]


def test_what_a_test_does_to_the_log_of_the_process_is_undone() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    protocol = pytest_runtest_protocol()
    next(protocol)
    configure_logs("debug", "logfmt", io.StringIO())
    assert (root.handlers, root.level) != before
    assert next(protocol, None) is None
    assert (root.handlers, root.level) == before
