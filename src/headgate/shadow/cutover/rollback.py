"""The way back. Before clients were sent over it is free; afterwards what was written over there must come along."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from headgate.model import StateError
from headgate.shadow.cutover.plan import alone, progress, sql
from headgate.shadow.cutover.target import Place, Target

__all__ = ["roll_back"]

Tell = Callable[[str], None]


def roll_back(
    connection: psycopg.Connection,
    target: Target,
    link: str,
    *,
    discard: bool = False,
    tell: Tell = lambda said: None,
) -> list[str]:
    """Bring all topics and groups of a link back; return the topics. Raises `StateError` if messages would be lost.

    `discard`: leave behind what was written to the other cluster after the topics had moved.
    """
    with alone(connection, link):
        return _roll_back(connection, target, link, tell, discard=discard)


def _roll_back(connection: psycopg.Connection, target: Target, link: str, tell: Tell, *, discard: bool) -> list[str]:
    states: dict[str, str] = dict(connection.execute(sql("moves"), [link]).fetchall())
    groups = [group for group, _, _ in connection.execute(sql("moved_groups"), [link])]
    topics = sorted(states)
    moved = [name for name, state in states.items() if state == "moved"]
    offsets = _offsets_back(connection, target, link, moved, groups, discard=discard) if moved else {}
    with connection.transaction():
        for (group_id, topic, partition), offset in offsets.items():
            connection.execute(sql("return_offset"), [group_id, partition, offset, topic])
        connection.execute(sql("return_groups"), [groups])
        connection.execute(sql("move_topics"), [link, topics, None, "{}"])
    tell(f"{len(topics)} topics and {len(groups)} groups are here again")
    if moved:
        tell("clients that have gone over do not come back by themselves: restart them with this cluster's servers")
    return topics


def _offsets_back(
    connection: psycopg.Connection, target: Target, link: str, topics: list[str], groups: list[str], *, discard: bool
) -> dict[tuple[str, str, int], int]:
    """Where each group goes on here; refuses if the log lacks what it goes on from."""
    behind = {(part.topic, part.partition): part for part in progress(connection, link, topics)}
    ways = _ways_back(connection, target, topics)
    for place, end in target.ends(behind).items():
        back = ways.get(place)
        if end > behind[place].ext_next and not discard and (back is None or back[1] < end):
            missing = end - max(behind[place].ext_next, back[1] if back else 0)
            raise StateError(
                f"{missing} messages of {place[0]}/{place[1]} were written to the other cluster since and are not here",
                remedy="stop its producers, let a pipeline mirror the topic back, and repeat; or leave them behind with"
                " --discard",
            )
    found: dict[tuple[str, str, int], int] = {}
    for group_id in groups:
        for place, offset in target.offsets(group_id).items():
            if place in behind:
                known = min(offset, behind[place].ext_next)
                arguments: list[object] = [link, *place, known]
                if offset > known and (back := ways.get(place)) is not None:
                    arguments = [back[0], *place, min(offset, back[1])]
                row = connection.execute(sql("source_offset"), arguments).fetchone()
                if row is not None and row[0] is not None:
                    found[(group_id, *place)] = row[0]
    return found


def _ways_back(connection: psycopg.Connection, target: Target, topics: list[str]) -> dict[Place, tuple[str, int]]:
    """By partition: the link that brings its messages back, and how far over there it has come."""
    rows = connection.execute(sql("ways_back"), [target.cluster()["cluster_id"], topics]).fetchall()
    return {(topic, partition): (name, ext_next) for name, topic, partition, _, ext_next in rows}
