"""The tables of states in the documents are what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.gateway.groups.classic import Phase
from headgate.pipeline.routing.breaker import Breaker, BreakerState
from headgate.relay.store.rows import AccountRow
from headgate.wire.kafka.refusal import Refused
from tests.unit.groups.group_drivers import ClassicDriver, ConsumerDriver, held_by

DOCS = Path(__file__).parents[3] / "docs"


def rows(page: str, header: str) -> list[list[str]]:
    """The rows of the table with this header, without marks of code."""
    lines = (DOCS / page).read_text(encoding="utf-8").partition(f"{header}\n")[2].splitlines()[1:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]


def breaker_in(state: str) -> tuple[Breaker, list[float]]:
    now = [0.0]
    breaker = Breaker(threshold=2, cool_down_s=30, clock=lambda: now[0])
    if state != BreakerState.CLOSED:
        breaker.failed()
        breaker.failed()
    if state == BreakerState.HALF_OPEN:
        now[0] = 30.0
    assert breaker.state == state
    return breaker, now


def test_the_table_of_the_breaker() -> None:
    table = rows("routing.md", "| breaker | what happens | then it is |")
    assert {row[0] for row in table} == {row[2] for row in table} == set(BreakerState)
    for before, event, after in table:
        breaker, now = breaker_in(before)
        match event:
            case "fewer failures than the threshold" | "a batch fails":
                breaker.failed()
            case "as many failures in a row as the threshold":
                breaker.failed()
                breaker.failed()
            case "the cool-down is over":
                now[0] += 30.0
            case "a batch succeeds":
                breaker.succeeded()
            case _:
                raise AssertionError(event)
        assert breaker.state == after, (before, event)


def test_the_table_of_an_account() -> None:
    table = rows("relay.md", "| at its host | set here | told |")
    assert len(table) == 4
    for at_host, here, told in table:
        is_active = at_host == "active"
        row = AccountRow(
            "did:plc:x", "host", active=is_active, status=None if is_active else at_host,
            local_status=None if here == "nothing" else here,
        )  # fmt: skip
        assert row.combined == (told == "active", None if told == "active" else told)


class PlayedClassic:
    """A classic group of two in one of its states: the leader `a`, and `b`, both static."""

    def __init__(self, state: str) -> None:
        self.driver = ClassicDriver()
        self.ids: list[str] = []
        if state == Phase.EMPTY:
            return
        self.ids = self.driver.start("a", "b", static=True)
        if state != Phase.STABLE:
            self.join("a")
        if state == Phase.COMPLETING:
            self.join("b")
        assert self.driver.group.state == state

    def join(self, name: str) -> None:
        """As it did before; who was not there before joins for the first time."""
        if self.ids:
            self.driver.join(name, self.ids["ab".index(name)], group_instance_id=name)
        else:
            self.driver.join(name)

    def leave(self, *names: str) -> None:
        for name in names:
            self.driver.group.leave(self.ids["ab".index(name)], name, self.driver.now)

    def beat(self, name: str) -> None:
        with pytest.raises(Refused):
            self.driver.group.heartbeat(self.ids["ab".index(name)], name, self.driver.group.generation, self.driver.now)

    def sync(self, name: str) -> None:
        self.driver.sync(f"sync {name}", self.ids["ab".index(name)], self.driver.group.generation)

    def play(self, event: str) -> None:  # noqa: C901 - one line for each event
        match event:
            case "a member joins":
                self.join("a")
            case "another member joins":
                self.driver.join("c")
            case "all members have joined":
                self.join("b")
            case "the session of a member that has not joined ends":
                self.driver.wait(10.0)  # its session; a rebalance may take twice as long
            case "the rebalance timeout is over":
                for _ in range(4):
                    self.beat("b")  # lives, and does not join
                    self.driver.wait(5.0)
            case "the leader sends the assignment":
                self.sync("a")
            case "the leader sends nothing until the rebalance timeout is over":
                self.sync("b")
                for _ in range(4):
                    self.driver.group.heartbeat(self.ids[0], "a", self.driver.group.generation, self.driver.now)
                    self.driver.wait(5.0)
            case "a follower joins again, with the same subscription":
                self.join("b")
            case "a static member comes back":
                self.driver.join("b", group_instance_id="b")
            case "the leader joins again":
                self.join("a")
            case "a member leaves":
                self.leave("b")
            case "the session of a member ends":
                self.driver.now += 5.0
                self.driver.group.heartbeat(self.ids[0], "a", self.driver.group.generation, self.driver.now)
                self.driver.wait(5.0)
            case "all members leave":
                self.leave("a", "b")
            case _:
                raise AssertionError(event)


def test_the_table_of_a_classic_group() -> None:
    table = rows("gateway.md", "| classic group | what happens | then it is |")
    assert {row[0] for row in table} == {row[2] for row in table} == set(Phase)
    for before, event, after in table:
        played = PlayedClassic(before)
        played.play(event)
        assert played.driver.group.state == after, (before, event)


class PlayedConsumer:
    """A group of the consumer protocol in one of its states; with members it has three, `a`, `b` and the static `c`."""

    def __init__(self, state: str) -> None:
        self.driver = ConsumerDriver(partitions=6, max_members=4)
        if state == "Empty":
            return
        for name in "abc":
            self.driver.beat(name, instance_id=name if name == "c" else None)
        self.settle()
        if state == "Assigning":
            self.driver.beat("c", -1, instance_id="c")
        if state == "Reconciling":
            self.driver.beat("d")
            self.driver.beat("a", self.epoch("a"))  # is told what it keeps
        assert self.driver.group.state == state

    def epoch(self, name: str) -> int:
        return self.driver.group.members[name].epoch

    def settle(self) -> None:
        """Let every member say what it holds, and do as it is told, until nothing changes."""
        for _ in range(4):
            for name in list(self.driver.group.members):
                self.driver.beat(name, self.epoch(name), owns=held_by(self.driver.group, name))

    def leave(self, *names: str) -> None:
        for name in names:
            self.driver.beat(name, -1, instance_id="c" if name == "c" else None)

    def play(self, event: str) -> None:
        driver = self.driver
        match event:
            case "a member joins":
                driver.beat("a")
            case "another member joins":
                driver.beat("d")
            case "a topic has more partitions, which the next heartbeat finds":
                driver.partitions += 3
                driver.beat("a", self.epoch("a"))
            case "a member leaves":
                self.leave("b")
            case "the session of a member ends":
                driver.now += 30.0
                driver.beat("a", self.epoch("a"))
                driver.beat("c", self.epoch("c"))
                driver.now += 15.0
                driver.group.tick(driver.now)
            case "a static member says that it will be back":
                driver.beat("c", -2, instance_id="c")
            case "a member sends a heartbeat" | "a member has not yet let go":
                driver.beat("a", self.epoch("a"))
            case "every member has what it should have":
                self.settle()
            case "a member does not let go until its rebalance timeout is over":
                driver.now += 10.0
                driver.group.tick(driver.now)
            case "all members leave":
                self.leave(*driver.group.members)
            case _:
                raise AssertionError(event)


def test_the_table_of_a_consumer_group() -> None:
    table = rows("gateway.md", "| consumer group | what happens | then it is |")
    states = {"Empty", "Assigning", "Reconciling", "Stable"}
    assert {row[0] for row in table} == {row[2] for row in table} == states
    for before, event, after in table:
        played = PlayedConsumer(before)
        played.play(event)
        assert played.driver.group.state == after, (before, event)
