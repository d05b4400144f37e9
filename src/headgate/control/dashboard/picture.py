"""Drawings, computed here and written as SVG by templates: the flow of rows, and sparklines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["BOX_HEIGHT", "BOX_WIDTH", "Box", "Edge", "Flow", "Node", "Spark", "draw_flow", "spark"]

BOX_WIDTH, BOX_HEIGHT = 226, 62
_STEP = 84  # from one box to the one below
_COLUMNS = (2, 387, 772)  # where sources, pipelines and destinations begin
_NAMES = ("sources", "pipelines", "destinations")
_WIDTH = 1000
_HEAD = 26  # above the boxes, for the names of the columns
_MOST_PIPELINES = 12
_WORST_FIRST = {"bad": 0, "warn": 1, "good": 2, "idle": 3}
_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_BUCKETS = 120, 28, 60
_SHORTEST_S = 120.0


@dataclass(frozen=True, slots=True)
class Node:
    """Something to draw a box for."""

    name: str
    kind: str
    health: str
    says: str
    url: str


@dataclass(frozen=True, slots=True)
class Box:
    """A box in its place."""

    node: Node
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows on their way from one box to another."""

    path: str
    label_x: int
    label_y: int
    per_second: float
    health: str
    title: str

    @property
    def pace(self) -> str:
        """How fast its dashes move."""
        if self.per_second <= 0:
            return "still"
        return "slow" if self.per_second < 10 else "fast" if self.per_second >= 1000 else "steady"


@dataclass(frozen=True, slots=True)
class Flow:
    """The whole picture."""

    width: int = _WIDTH
    height: int = 0
    boxes: tuple[Box, ...] = ()
    edges: tuple[Edge, ...] = ()
    left_out: int = 0

    @property
    def columns(self) -> list[tuple[str, int]]:
        """The names above the boxes, and where they stand."""
        return [(name, x + BOX_WIDTH // 2) for name, x in zip(_NAMES, _COLUMNS, strict=True)]


def draw_flow(
    sources: Mapping[str, Node],
    pipelines: Mapping[str, Node],
    destinations: Mapping[str, Node],
    reads: Mapping[str, tuple[str, float]],
    writes: Mapping[str, Sequence[tuple[str, float]]],
) -> Flow:
    """The picture of pipelines, each of which `reads` one source and `writes` destinations, at so many rows a second.

    Of many, those in trouble and then the busiest are drawn.
    """
    ranked = sorted(pipelines, key=lambda name: (_WORST_FIRST[pipelines[name].health], -reads[name][1]))
    chosen = [name for name in pipelines if name in set(ranked[:_MOST_PIPELINES])]
    used_sources = list(dict.fromkeys(reads[name][0] for name in chosen))
    used = list(dict.fromkeys(to for name in chosen for to, _ in writes[name]))[: 2 * _MOST_PIPELINES]
    columns = (
        [sources[name] for name in used_sources],
        [pipelines[name] for name in chosen],
        [destinations[name] for name in used],
    )
    most = max((len(column) for column in columns), default=0)
    height = _HEAD + most * _STEP
    placed = [
        {node.name: Box(node, x, _HEAD + round((most - len(column)) * _STEP / 2 + row * _STEP))
         for row, node in enumerate(column)}
        for x, column in zip(_COLUMNS, columns, strict=True)
    ]  # fmt: skip
    edges = [_edge(placed[0][reads[name][0]], placed[1][name], reads[name][1], pipelines[name].health)
             for name in chosen]  # fmt: skip
    edges += [
        _edge(placed[1][name], placed[2][to], per_second, _worse(pipelines[name].health, destinations[to].health))
        for name in chosen
        for to, per_second in writes[name]
        if to in placed[2]
    ]
    boxes = tuple(box for column in placed for box in column.values())
    return Flow(height=height, boxes=boxes, edges=tuple(edges), left_out=len(pipelines) - len(chosen))


def _worse(one: str, other: str) -> str:
    return min(one, other, key=lambda health: _WORST_FIRST[health])


def _edge(start: Box, end: Box, per_second: float, health: str) -> Edge:
    x1, y1 = start.x + BOX_WIDTH, start.y + BOX_HEIGHT // 2
    x2, y2 = end.x, end.y + BOX_HEIGHT // 2
    bend = (x2 - x1) // 2
    title = f"{start.node.name} to {end.node.name}"
    path = f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    return Edge(path, (x1 + x2) // 2, (y1 + y2) // 2, per_second, health, title)


@dataclass(frozen=True, slots=True)
class Spark:
    """A sparkline: rows a second over some time."""

    width: int
    height: int
    line: str
    area: str
    most: float
    minutes: float


def spark(rates: Sequence[tuple[float, float]], kept_s: float) -> Spark | None:
    """A sparkline of (seconds ago, rate), oldest first; None if there is nothing to draw yet.

    A single peak, such as that of a start, does not flatten the rest: it is cut at three times the median.
    """
    if len(rates) < 2:
        return None
    span_s = min(kept_s, max(_SHORTEST_S, rates[0][0]))
    sums: dict[int, list[float]] = {}
    for ago_s, per_second in rates:
        if ago_s <= span_s:
            sums.setdefault(int((1 - ago_s / span_s) * (_SPARK_BUCKETS - 1)), []).append(per_second)
    values = {bucket: sum(each) / len(each) for bucket, each in sorted(sums.items())}
    most = max(values.values())
    top = min(most, 3 * median(values.values()) or most)
    points = [(_x(bucket), _y(min(value, top), top)) for bucket, value in values.items()]
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    area = f"{points[0][0]:g},{_SPARK_HEIGHT} {line} {points[-1][0]:g},{_SPARK_HEIGHT}"
    return Spark(_SPARK_WIDTH, _SPARK_HEIGHT, line, area, most, span_s / 60)


def _x(bucket: int) -> float:
    return round(bucket * _SPARK_WIDTH / (_SPARK_BUCKETS - 1), 1)


def _y(value: float, most: float) -> float:
    return round(_SPARK_HEIGHT - 2 - (value / most if most else 0) * (_SPARK_HEIGHT - 5), 1)
