"""What the dashboard concludes from samples, draws and writes."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.control.dashboard.flowing import flow
from headgate.control.dashboard.history import History
from headgate.control.dashboard.picture import Node, draw_flow, spark
from headgate.control.dashboard.shown import age, rate, shown_value, size
from headgate.model import Status
from headgate.pipeline.report import Report


class Sampled:
    """A pipeline whose rows and lag a test sets, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rows, self.behind = 0, None
        self.history = History(lambda: self, lambda: self.now)

    def reports(self) -> list[Report]:
        return [Report("p", "s", ("d",), rows_total=self.rows, bytes_total=10 * self.rows, lag_rows=self.behind)]

    def control(self) -> Any:
        return None

    def sample(self, rows: int, behind: int | None) -> None:
        self.rows, self.behind = rows, behind  # type: ignore[assignment]
        self.now += 5
        self.history.take()


def test_a_lag_that_nobody_tells_is_not_made_up() -> None:
    sampled = Sampled()
    assert sampled.history.behind_s("p") is None
    sampled.sample(10, None)
    assert sampled.history.behind_s("p") is None


def test_a_pipeline_in_the_midst_of_a_steady_stream_is_as_late_as_its_few_rows() -> None:
    sampled = Sampled()
    for number in range(60):
        sampled.sample(500 * number, 10)
    assert sampled.history.behind_s("p") == pytest.approx(0.1)
    assert sampled.history.bytes_per_second("p") == pytest.approx(1000)


def test_a_pipeline_that_stands_still_grows_older() -> None:
    sampled = Sampled()
    sampled.sample(100, 0)
    assert sampled.history.behind_s("p") == 0
    for _ in range(10):
        sampled.sample(100, 7)  # these seven came once; nothing comes, nothing goes
    assert sampled.history.behind_s("p") == 50
    for number in range(1, 11):
        sampled.sample(100, 7 + 50 * number)  # ten a second come, and none is delivered
    assert 45 <= (sampled.history.behind_s("p") or 0) <= 100
    sampled.sample(607, 0)
    assert sampled.history.behind_s("p") == 0


def test_samples_are_bounded_and_forgotten_with_their_pipeline() -> None:
    sampled = Sampled()
    for number in range(1000):
        sampled.sample(number, 0)
    assert len(sampled.history.rates("p")) == 180
    sampled.reports = list  # type: ignore[method-assign]
    sampled.history.take()
    assert sampled.history.rates("p") == []


def _node(name: str, health: str = "good") -> Node:
    return Node(name, "kind", health, "says", f"/{name}")


def test_of_many_pipelines_those_in_trouble_and_the_busiest_are_drawn() -> None:
    names = [f"p{number}" for number in range(100)]
    pipelines = {name: _node(name, "bad" if name == "p50" else "good") for name in names}
    reads = {name: (f"s-{name}", float(number)) for number, name in enumerate(names)}
    writes = {name: [(f"d-{name}", 1.0)] for name in names}
    drawing = draw_flow(
        {f"s-{name}": _node(f"s-{name}") for name in names}, pipelines,
        {f"d-{name}": _node(f"d-{name}") for name in names}, reads, writes,
    )  # fmt: skip
    drawn = {box.node.name for box in drawing.boxes}
    assert {"p50", "p99", "d-p50"} <= drawn
    assert "p0" not in drawn
    assert (drawing.left_out, len(drawing.edges)) == (88, 24)
    places = [(box.x, box.y) for box in drawing.boxes]
    assert len(set(places)) == len(places)
    assert max(box.y for box in drawing.boxes) < drawing.height


def test_a_box_is_as_healthy_as_its_own_part() -> None:
    """A pipeline that failed does not make its source look broken, nor an open circuit the other destination."""

    class Control:
        def destinations(self, key: str) -> list[dict[str, Any]]:
            return [
                {"destination": "good", "circuit": "closed", "rows_total": 5},
                {"destination": "sick", "circuit": "open", "rows_total": 1},
            ]

    report = Report(
        "p", "s", ("good", "sick"), status=Status.ERROR, source_details={"reader": "streaming"}, rows_total=6,
        routing={"destinations_active": 2, "circuits_open": 1},
    )  # fmt: skip

    class Service:
        def reports(self) -> list[Report]:
            return [report]

        def control(self) -> Any:
            return Control()

    history = History(Service)
    history.take()
    drawn = flow([report], {"sources": {}, "destinations": {}}, history)
    told = {box.node.name: (box.node.health, box.node.says) for box in drawn.boxes}
    assert told == {
        "s": ("good", "streaming"),
        "p": ("bad", "error"),
        "good": ("good", "2 topics"),
        "sick": ("warn", "1 circuit open"),
    }


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw_flow({}, {}, {}, {}, {}).boxes == ()
    assert spark([], 900) is None
    flat = spark([(10, 0.0), (5, 0.0)], 900)
    assert flat is not None
    assert "nan" not in flat.line


@pytest.mark.parametrize(
    ("raw", "form", "part"),
    [
        (b'{"a": 1}', "JSON", '"a": 1'),
        (b"\x81\xa1a\xc4\x02\xff\xfe", "MessagePack", "fffe"),
        (b"{broken", "text", "{broken"),
        (b"\x81\xa1", "hex", "81 a1"),
        (b"a\x00b", "hex", "61 00 62"),
        (b"[" * 100_000, "text", "[["),
        (b'{"a": "' + b"x" * 100_000 + b'"}', "text", "xxx"),
        ("é".encode() * 100_000, "text", "é"),
        (b"\xff" * 100_000, "hex", "ff ff"),
        (b"", "text", ""),
        (None, "nothing", ""),
    ],
)
def test_values_are_shown_as_what_they_are(raw: bytes | None, form: str, part: str) -> None:
    shown = shown_value(raw)
    assert (shown.form, part in shown.text, len(shown.text) <= 4000) == (form, True, True)
    assert shown.is_cut == (shown.bytes > 50_000)


def test_a_value_is_shown_in_the_form_that_is_wanted() -> None:
    assert shown_value(b'{"a": 1}', form="text").text == '{"a": 1}'
    assert shown_value(b'{"a": 1}', form="hex").text == "7b 22 61 22 3a 20 31 7d"
    assert shown_value(b"\xff\x00", form="text").text == "\ufffd\ufffd"
    beginning = shown_value(b"x" * 100, 5_000_000)
    assert (beginning.bytes, beginning.is_cut) == (5_000_000, True)


def test_numbers_are_short() -> None:
    assert [age(each) for each in (None, 0, 0.3, 5, 300, 90_000)] == ["-", "0 s", "< 1 s", "5 s", "5 min", "25 h"]
    assert [rate(each) for each in (0, 0.25, 9_999, 12_345, 2e6)] == ["0", "0.2", "9,999", "12.3k", "2.0M"]
    assert [size(each) for each in (None, 999, 1_500, 2e9)] == ["-", "999 B", "1.5 kB", "2.0 GB"]
