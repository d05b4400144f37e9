"""Offsets of consumer groups, translated exactly and written at the other cluster while nobody uses the group there.

An offset there is never taken back, and a group that has members there is left alone: its coordinator takes offsets
from nobody else. An offset whose message is not mirrored so far waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec
import psycopg
from psycopg.rows import class_row

from headgate.model import ConnectError, HeadgateError
from headgate.postgres.statements import named_statements
from headgate.shadow.client import Client, borrow_client
from headgate.shadow.cluster import Cluster
from headgate.shadow.coordinators import Commit, commit_offsets, committed_offsets
from headgate.shadow.links import Link

__all__ = ["GroupOffset", "group_offsets", "push_groups"]

_SQL = named_statements("headgate.shadow")


class GroupOffset(msgspec.Struct, frozen=True):
    """An offset of a group on one partition of a mirrored topic, here and there.

    `state` is what became of it: `pushed` (it is there), `waiting` (not mirrored so far), `live` (the group has members
    there), `ahead` (the group was further there already); empty if that is not known.
    """

    group: str
    topic: str
    partition: int
    ext_topic: str
    committed: int
    ext_offset: int | None  # where it should be there; None: not mirrored so far
    metadata: bytes
    state: str = ""


def group_offsets(
    connection: psycopg.Connection,
    link: Link,
    *,
    groups: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    again: bool = True,
) -> list[GroupOffset]:
    """Return the offsets of groups on the link's topics, with their translation and what became of it so far.

    `groups` are patterns with `*`, by default the link's own; `topics` are names, by default all. Without `again` what
    was pushed is not translated anew.
    """
    patterns = list(link.groups if groups is None else groups)
    names = None if topics is None else set(topics)
    with connection.cursor(row_factory=class_row(GroupOffset)) as cursor:
        found = cursor.execute(_SQL["group_offsets"], [again, link.name]).fetchall()
    return [
        each
        for each in found
        if (names is None or each.topic in names) and any(fnmatchcase(each.group, pattern) for pattern in patterns)
    ]


def push_groups(
    connection: psycopg.Connection,
    cluster: Cluster,
    link: Link,
    *,
    groups: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    again: bool = False,
) -> list[GroupOffset]:
    """Push offsets that have changed since the last time, or with `again` all; return every one with its state.

    `groups` and `topics` are as for `group_offsets`. Whoever must know that all are there looks whether each is
    `pushed` or `ahead`. A group that cannot be pushed is `failed`, which is raised when all others are done.
    """
    found = group_offsets(connection, link, groups=groups, topics=topics, again=again)
    by_group: dict[str, list[GroupOffset]] = {}
    for each in found:
        by_group.setdefault(each.group, []).append(each)
    due = {group: offsets for group, offsets in by_group.items() if again or any(map(_is_due, offsets))}
    told: list[GroupOffset] = []
    failure: HeadgateError | None = None
    for group, offsets in by_group.items():
        if group not in due:
            told += offsets
            continue
        try:
            with borrow_client(cluster) as client:
                states = _pushed(client, group, offsets)
        except ConnectError:
            raise
        except HeadgateError as error:  # of this group: others go on
            failure, states = failure or error, ["failed"] * len(offsets)
        told += [msgspec.structs.replace(each, state=state) for each, state in zip(offsets, states, strict=True)]
    _note(connection, link, [new for old, new in zip(found, told, strict=True) if old != new])
    if failure is not None:
        raise failure
    return told


def _is_due(offset: GroupOffset) -> bool:
    """Whether there is something to do: what waits for its message is looked at only when that is mirrored."""
    return offset.state not in ("pushed", "ahead") and offset.ext_offset is not None


def _pushed(client: Client, group: str, offsets: Sequence[GroupOffset]) -> list[str]:
    """What became of each offset of a group."""
    there = committed_offsets(client, group)
    states: list[str] = []
    news: dict[tuple[str, int], Commit] = {}
    for each in offsets:
        place = each.ext_topic, each.partition
        known = there.get(place, -1)
        if each.ext_offset is None:
            states.append("waiting")
        elif known > each.ext_offset:
            states.append("ahead")
        else:
            states.append("pushed")
            if known < each.ext_offset:
                news[place] = Commit(each.ext_offset, each.metadata.decode(errors="replace"))
    if news and not commit_offsets(client, group, news):
        return ["live"] * len(states)
    return states


def _note(connection: psycopg.Connection, link: Link, changed: Sequence[GroupOffset]) -> None:
    rows = [
        (link.name, each.group, each.topic, each.partition, each.committed, _there(each), each.state)
        for each in changed
    ]
    if rows:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(_SQL["note_group"], rows)


def _there(offset: GroupOffset) -> int | None:
    return offset.ext_offset if offset.state == "pushed" else None
