"""What a cut-over would move, and what stands against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg

from headgate.model import OccupiedError, StateError, UsageError
from headgate.postgres.statements import named_statements
from headgate.shadow.cutover.target import Target

__all__ = ["MovingGroup", "Part", "Plan", "alone", "make_plan", "progress", "sql"]


def sql(name: str) -> bytes:
    """Return one statement of a cut-over."""
    return named_statements(__package__)[name]


@dataclass(frozen=True, slots=True)
class Part:
    """How far one partition is mirrored."""

    topic: str
    partition: int
    mirrored_to: int
    ext_next: int
    records: int
    next_offset: int
    stable_offset: int
    log_start_offset: int
    part_id: int
    digest: bytes

    @property
    def lag(self) -> int:
        """Return how many offsets are to be mirrored yet, those of open transactions among them."""
        return max(self.next_offset - max(self.mirrored_to, self.log_start_offset), 0)


@dataclass(frozen=True, slots=True)
class MovingGroup:
    """A group that has offsets of the topics."""

    group_id: str
    state: str
    members: int
    other_topics: list[str]
    lag: int


@dataclass(slots=True)
class Plan:
    """Problems end a cut-over before it begins; notes say what somebody should know."""

    link: str
    servers: str
    cluster_id: str
    topics: dict[str, str | None] = field(default_factory=dict)  # and how far their move has come
    groups: list[MovingGroup] = field(default_factory=list)
    lag: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def make_plan(connection: psycopg.Connection, target: Target, link: str, topics: Sequence[str] = ()) -> Plan:
    """Return what it would take to move topics of a link, all of them if none are named. Changes nothing."""
    found = connection.execute(sql("link"), [link]).fetchone()
    if found is None:
        raise UsageError(f"there is no link {link}", where="kafka.shadow_links", remedy="see: headgate shadow status")
    direction, servers, cluster_id, prefix, percent = found
    names = list(topics) or [name for (name,) in connection.execute(sql("link_topics"), [link])]
    if not names:
        raise StateError(f"the link {link} mirrors nothing yet", remedy="start its pipeline: headgate run")
    there = target.cluster()
    plan = Plan(link, servers, there["cluster_id"])
    _check_link(plan, direction, cluster_id, prefix, percent)
    _check_nodes(plan, connection, [broker["node_id"] for broker in there["brokers"]])
    _check_topics(plan, connection, target, names)
    _check_groups(plan, connection, target, list(plan.topics))
    _note_transactions(plan, connection)
    plan.lag = sum(part.lag for part in progress(connection, link, list(plan.topics)))
    return plan


@contextmanager
def alone(connection: psycopg.Connection, link: str) -> Iterator[None]:
    """Move topics of a link alone: one who begins anew lifts the fence that another one trusts."""
    if connection.execute(sql("lock_link"), [link]).fetchone() != (True,):
        raise OccupiedError(
            f"somebody else moves topics of the link {link} just now",
            where="kafka.moves",
            remedy="wait until that has ended; see: headgate shadow plan",
        )
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute(sql("unlock_link"), [link])


def progress(connection: psycopg.Connection, link: str, topics: Sequence[str]) -> list[Part]:
    """Return how far each partition is mirrored."""
    return [Part(*row) for row in connection.execute(sql("progress"), [link, list(topics)])]


def _check_link(plan: Plan, direction: str, cluster_id: str | None, prefix: str, percent: int) -> None:
    if direction != "out":
        plan.problems.append("the link brings messages into this log; a cut-over needs one that goes out")
    if cluster_id != plan.cluster_id:
        plan.problems.append(f"the link was made with the cluster {cluster_id}, and this one is {plan.cluster_id}")
    if prefix:
        plan.problems.append(f"topics have other names there (topic_prefix {prefix!r}); clients would not find them")
    if percent != 100:
        plan.problems.append(f"only {percent} percent of the keys are mirrored; set percent = 100 and mirror anew")


def _check_nodes(plan: Plan, connection: psycopg.Connection, nodes: Sequence[int]) -> None:
    """Clients know brokers by their ids, of all clusters at once for a while."""
    known = {node for (node,) in connection.execute(sql("nodes"), [plan.cluster_id])}
    if both := sorted(known.intersection(nodes)):
        plan.problems.append(
            f"broker id {both[0]} is another broker's here, or in a cluster to which topics have moved: give the"
            f" brokers there ids from {max(known) + 1} on (node.id)"
        )


def _check_topics(plan: Plan, connection: psycopg.Connection, target: Target, names: Sequence[str]) -> None:
    rows = connection.execute(sql("topics"), [plan.link, plan.link, list(names)]).fetchall()
    there = target.topics([name for name, *_ in rows]) if rows else {}
    plan.problems += [f"there is no topic {name} here" for name in sorted(set(names) - {row[0] for row in rows})]
    for name, state, mover, parts, mirrored, rejected in rows:
        plan.topics[name] = state
        if mover not in (None, plan.link):
            plan.problems.append(f"the link {mover} is moving the topic {name}")
        if name not in there:
            plan.problems.append(f"there is no topic {name} in the other cluster")
        elif len(there[name].partitions) != len(parts):
            plan.problems.append(f"{name} has {len(parts)} partitions here and {len(there[name].partitions)} there")
        if mirrored != len(parts):
            plan.problems.append(
                f"{mirrored} of {len(parts)} partitions of {name} are mirrored: is its pipeline running?"
            )
        if rejected:
            plan.problems.append(
                f"{rejected} batches of {name} were refused there: see kafka.shadow_rejected, and send them again with"
                f" select kafka.shadow_retry('{plan.link}', '{name}')"
            )


def _check_groups(plan: Plan, connection: psycopg.Connection, target: Target, topics: list[str]) -> None:
    moved = {group for group, _, _ in connection.execute(sql("moved_groups"), [plan.link])}
    for row in connection.execute(sql("groups"), [topics, plan.link, topics]).fetchall():
        group = MovingGroup(*row)
        plan.groups.append(group)
        if group.other_topics:
            plan.problems.append(
                f"the group {group.group_id} reads {', '.join(group.other_topics)}, too: move these along"
            )
        if group.group_id not in moved and target.group(group.group_id).members:
            plan.problems.append(f"the group {group.group_id} has members in the other cluster already")
    if any(not group.members for group in plan.groups):
        plan.notes.append("groups without members find their offsets in the other cluster; start them with its servers")


def _note_transactions(plan: Plan, connection: psycopg.Connection) -> None:
    if ids := [name for (name,) in connection.execute(sql("transactional_ids"))]:
        plan.notes.append(
            f"producers with transactional ids ({', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}) do not move by"
            " themselves: if they write to these topics, restart them with the servers of the other cluster"
        )
