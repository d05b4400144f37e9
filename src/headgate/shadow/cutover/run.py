"""A cut-over, step by step. Each step looks first whether it is done, so a second run goes on where one was cut off.

    catch up   wait until the mirror is nearly there, while everything goes on
    fence      nobody appends any more; producers try again, without an error for their callers
    drain      the outbox, open transactions and the mirror come to their ends
    verify     ends, rolling hashes and the newest messages are the same on both sides
    groups     wait until consumers have read and committed all; take groups from their coordinators; push offsets
    hand over  members join over there, while nobody can read the topics on either side
    flip       Metadata names the other cluster's brokers

Until the groups are taken, whatever fails lifts the fence again, and producers go on here. From then on a failure
leaves the topics closed: repeat, or roll back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import escape

import psycopg
from psycopg.types.json import Jsonb

from headgate.model import StateError
from headgate.runtime.backoff import Backoff
from headgate.shadow.cutover.hashes import Hashes
from headgate.shadow.cutover.plan import Part, Plan, alone, make_plan, progress, sql
from headgate.shadow.cutover.target import Target
from headgate.shadow.cutover.verify import verify
from headgate.shadow.groups import push_groups
from headgate.shadow.links import find_link

__all__ = ["Patience", "cut_over"]

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each wait may take, in seconds, and what counts as caught up."""

    catch_up_s: float = 3600.0
    near: int = 1000  # messages: so few are mirrored within moments, once nobody appends
    drain_s: float = 60.0
    transactions_s: float = 20.0  # then they are aborted
    groups_s: float = 30.0  # for consumers to commit what they have read
    members_s: float = 60.0  # for members to join over there
    verify: int = 1000  # messages of each partition that are compared, the newest
    hash: bool = True  # whether all that was mirrored is read back, for the rolling hash


@dataclass(slots=True)
class _Move:
    """What the steps share."""

    connection: psycopg.Connection
    target: Target
    plan: Plan
    patience: Patience
    tell: Tell
    topics: list[str] = field(default_factory=list)

    def progress(self) -> list[Part]:
        return progress(self.connection, self.plan.link, self.topics)

    def state(self, state: str | None, targets: dict[str, object] | None = None) -> None:
        arguments = [self.plan.link, self.topics, state, Jsonb(targets or {})]
        self.connection.execute(sql("move_topics"), arguments)


def cut_over(
    connection: psycopg.Connection,
    target: Target,
    link: str,
    topics: Sequence[str] = (),
    *,
    patience: Patience | None = None,
    tell: Tell = lambda said: None,
) -> Plan:
    """Move topics and their groups to the cluster of a link; return what was moved. Raises `StateError` if it cannot.

    `connection` commits by itself. `tell` is called with what is being done.
    """
    with alone(connection, link):
        return _cut_over(connection, target, make_plan(connection, target, link, topics), patience or Patience(), tell)


def _cut_over(connection: psycopg.Connection, target: Target, plan: Plan, patience: Patience, tell: Tell) -> Plan:
    if plan.problems:
        raise StateError(
            f"the cut-over cannot begin: {plan.problems[0]}",
            where=plan.link,
            remedy=f"see: headgate shadow plan {plan.link}",
        )
    move = _Move(connection, target, plan, patience, tell, sorted(plan.topics))
    states = set(plan.topics.values())
    if states == {"moved"}:
        tell("all of these topics have moved already")
        return plan
    if not states & {"closed", "moved"}:
        move.state(None)  # of a run that was killed: nobody waits while we read
        _catch_up(move)
        hashes = Hashes(target, tell)
        if move.patience.hash:
            hashes.read(move.progress())
        with _lifting_the_fence(move):
            _fence(move)
            _drain(move)
            _verify(move, hashes)
            groups = _await_readers(move)
        _close(move, groups)
    _push_offsets(move)
    _hand_over(move)
    _flip(move)
    return plan


def _catch_up(move: _Move) -> None:
    """Wait until the mirror is nearly at its end, while producers and consumers go on."""
    for left in _until(lambda: _total_lag(move), move.patience.catch_up_s, "the mirror does not catch up"):
        if left <= move.patience.near:
            return
        move.tell(f"{left} messages to mirror")


def _fence(move: _Move) -> None:
    move.state("fenced")
    move.tell(f"producers of {len(move.topics)} topics wait")


@contextmanager
def _lifting_the_fence(move: _Move) -> Iterator[None]:
    try:
        yield
    except BaseException:
        move.state(None)
        move.tell("producers go on here")
        raise


def _drain(move: _Move) -> None:
    groups = [group.group_id for group in move.plan.groups]
    began = time.monotonic()

    def left() -> int:
        waiting = _value(move, "inbox", [move.topics])
        open_ids = [name for (name,) in move.connection.execute(sql("transactions"), [groups, move.topics])]
        if open_ids and time.monotonic() - began > move.patience.transactions_s:
            move.tell(f"aborting {len(open_ids)} transactions that stay open")
            move.connection.execute(sql("hurry"), [open_ids])
        return waiting + len(open_ids) + _total_lag(move)

    for waiting in _until(left, move.patience.drain_s, "what was written before the fence is not mirrored"):
        if not waiting:
            break
    move.tell("all is mirrored")


def _verify(move: _Move, hashes: Hashes) -> None:
    parts = move.progress()
    compared = verify(move.connection, move.target, move.plan.link, parts, move.patience.verify)
    move.tell(f"the ends of {len(parts)} partitions are the same, and the newest {compared} messages")
    if move.patience.hash:
        move.tell(f"the rolling hashes of {hashes.check(parts)} messages are the same")


def _await_readers(move: _Move) -> list[str]:
    """The groups that move. Who has not read all by then is told of the rest over there."""

    def behind() -> list[str]:
        rows = move.connection.execute(sql("groups"), [move.topics, move.plan.link, move.topics]).fetchall()
        return [group for group, _, members, _, lag in rows if members and lag]

    deadline = time.monotonic() + move.patience.groups_s
    pauses = Backoff(0.05, 0.5)
    while (late := behind()) and time.monotonic() < deadline:
        time.sleep(pauses.next_s())
    if late:
        move.tell(f"{len(late)} groups have not committed all they have read, or are behind: {', '.join(late[:5])}")
    return [
        group
        for group, *_ in move.connection.execute(sql("groups"), [move.topics, move.plan.link, move.topics]).fetchall()
    ]


def _close(move: _Move, groups: list[str]) -> None:
    """Both at once: a group that can still commit finds its topics, and one that cannot does not.

    Under the log's lock it is looked at once more whether the fence has stood, and nothing has come in since.
    """
    with move.connection.transaction():
        states: dict[str, str] = dict(move.connection.execute(sql("moves"), [move.plan.link]).fetchall())
        move.connection.execute(sql("close_groups"), [move.plan.link, groups])
        move.state("closed")
        if any(states.get(topic) != "fenced" for topic in move.topics) or _total_lag(move):
            raise StateError("the fence was lifted by somebody else", where=move.plan.link, remedy="run it again")
    move.tell(f"{len(groups)} groups are on their way")


def _push_offsets(move: _Move) -> None:
    """Offsets can change no more; whoever has a place over there has them already."""
    waiting = [group_id for group_id, _, has_place in _moved_groups(move) if not has_place]
    link = find_link(move.connection, move.plan.link)
    assert link is not None
    escaped = [escape(group_id) for group_id in waiting]
    told = push_groups(move.connection, move.target.reached, link, groups=escaped, topics=move.topics, again=True)
    for each in told:
        if each.state not in ("pushed", "ahead"):
            raise StateError(
                f"the offset of {each.group} in {each.topic}/{each.partition} is not over there: {each.state}",
                remedy="repeat, or roll back",
            )
    for group_id in waiting:
        coordinator = move.target.group(group_id).coordinator
        if coordinator is None:
            raise StateError(f"the other cluster names no coordinator for {group_id}", remedy="repeat, or roll back")
        place = [group_id, coordinator.node_id, coordinator.host, coordinator.port]
        move.connection.execute(sql("move_group"), place)


def _hand_over(move: _Move) -> None:
    """Wait until members have joined over there: with offsets of this cluster they must not learn of new leaders."""
    waiting = {group_id: members for group_id, members, _ in _moved_groups(move) if members}
    deadline, pauses = time.monotonic() + move.patience.members_s, Backoff(0.05, 0.5)
    while waiting and time.monotonic() < deadline:
        waiting = {each: members for each, members in waiting.items() if move.target.group(each).members < members}
        if waiting:
            time.sleep(pauses.next_s())
    if waiting:
        move.tell(f"not all members of {', '.join(sorted(waiting)[:5])} have come; they have had their session's time")
    else:
        move.tell("all members have joined over there")


def _flip(move: _Move) -> None:
    cluster = move.target.cluster()
    topics = move.target.topics(move.topics)
    targets: dict[str, object] = {
        name: {**cluster, "topic_id": str(topic.topic_id), "partitions": topic.partitions}
        for name, topic in topics.items()
    }
    if missing := sorted(set(move.topics) - topics.keys()):
        raise StateError(f"the topic {missing[0]} is gone in the other cluster", remedy="roll back")
    move.state("moved", targets)
    move.tell(f"clients of {len(targets)} topics are sent to {move.target.servers}")


def _moved_groups(move: _Move) -> list[tuple[str, int, bool]]:
    return list(move.connection.execute(sql("moved_groups"), [move.plan.link]).fetchall())


def _total_lag(move: _Move) -> int:
    return sum(part.lag for part in move.progress())


def _value(move: _Move, name: str, values: list[object]) -> int:
    row = move.connection.execute(sql(name), values).fetchone()
    return 0 if row is None else int(row[0])


def _until(look: Callable[[], int], patience_s: float, problem: str) -> Iterator[int]:
    """What `look` finds, again and again; raises when that takes too long."""
    deadline, pauses = time.monotonic() + patience_s, Backoff(0.05, 0.5)
    while True:
        found = look()
        yield found
        if time.monotonic() > deadline:
            raise StateError(
                f"{problem}: {found} are left after {patience_s:g} s",
                remedy="see: headgate shadow status, for what its pipeline says",
            ) from None
        time.sleep(pauses.next_s())
