"""Classic groups, rule by rule: what the protocol says about joins, leaders, static members and commits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.gateway.groups.classic import Phase
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.membership import (
    JoinGroupProtocol,
    SyncGroupRequest,
)
from headgate.wire.kafka.refusal import Refused
from tests.unit.groups.group_drivers import OLD, SETTINGS
from tests.unit.groups.group_drivers import ClassicDriver as Driver


def refusal(call: Any, *values: Any, **fields: Any) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        call(*values, **fields)
    return refused.value.code


def test_members_that_start_together_join_together() -> None:
    driver = Driver()
    driver.join("a")
    driver.wait(0.9)
    driver.join("b")
    driver.wait(0.9)
    assert not driver.answers
    driver.wait(0.1)
    assert {each.generation_id for each in driver.answers.values()} == {1}
    assert [len(driver.answers[ticket].members) for ticket in "ab"] == [2, 0]


def test_the_protocol_that_most_prefer_among_those_that_all_know_is_chosen() -> None:
    driver = Driver()
    driver.join("a", names=("sticky", "roundrobin", "range"))
    driver.join("b", names=("mine", "range", "roundrobin"))
    driver.join("c", names=("range", "roundrobin"))
    driver.wait(1.0)
    assert driver.answers["a"].protocol_name == "range"
    assert [each.metadata for each in driver.answers["a"].members] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"names": ("other",)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": (JoinGroupProtocol("range", bytes(1 << 20)),)}, ErrorCode.INVALID_REQUEST),
    ],
    ids=["short", "long", "type", "no-type", "no-protocol", "protocol", "stranger", "big"],
)
def test_a_join_that_does_not_fit_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    driver = Driver()
    driver.start("a")
    assert refusal(driver.join, "b", **fields) is code
    assert driver.group.phase is Phase.STABLE


def test_a_group_has_room_for_so_many() -> None:
    driver = Driver()
    driver.start("a", "b")
    driver.join("new", client=replace(OLD, version=5))  # one who has only got an id counts
    assert refusal(driver.join, "c") is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_new_member_learns_its_id_first_and_leaves_no_ghost() -> None:
    driver = Driver()
    driver.join("first", client=replace(OLD, version=4))
    driver.join("lost", client=replace(OLD, version=4))
    assert [driver.answers[each].error_code for each in ("first", "lost")] == [ErrorCode.MEMBER_ID_REQUIRED] * 2
    driver.join("second", driver.answers["first"].member_id, replace(OLD, version=4))
    driver.wait(1.0)
    assert "second" not in driver.answers  # the other may still come
    driver.wait(9.0)
    assert len(driver.answers["second"].members) == 1


def test_who_does_not_join_again_in_time_is_out() -> None:
    driver = Driver()
    first, second = driver.start("a", "b")
    driver.join("c")
    assert refusal(driver.group.heartbeat, first, None, 1, driver.now) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join("a2", first)
    for _ in range(4):
        driver.wait(5.0)
        if second in driver.group.members:
            with pytest.raises(Refused):
                driver.group.heartbeat(second, None, 1, driver.now)  # alive, but not back
    assert {each.member_id for each in driver.answers["a2"].members} == {first, driver.answers["c"].member_id}
    assert refusal(driver.group.heartbeat, second, None, 1, driver.now) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_assign_is_replaced() -> None:
    driver = Driver(replace(SETTINGS, max_rebalance_timeout_ms=5_000))
    driver.join("a")
    driver.join("b")
    driver.wait(1.0)
    leader, other = driver.answers["a"].member_id, driver.answers["b"].member_id
    driver.sync("b-sync", other, 1)
    driver.wait(5.0)
    assert driver.answers["b-sync"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join("b2", other)
    assert (driver.answers["b2"].leader, driver.answers["b2"].generation_id) == (other, 2)
    assert refusal(driver.group.heartbeat, leader, None, 1, driver.now) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_joins_again_makes_a_rebalance_and_stays_leader() -> None:
    driver = Driver()
    leader, other = driver.start("a", "b")
    driver.join("follower", other, protocols=(JoinGroupProtocol("range", b"b"),))
    assert driver.answers["follower"].generation_id == 1  # nothing has changed for it
    driver.join("leader", leader, protocols=(JoinGroupProtocol("range", b"a"),))
    assert driver.group.phase is Phase.PREPARING
    driver.join("follower2", other)
    assert driver.answers["leader"].leader == leader
    assert len(driver.answers["leader"].members) == 2


def test_a_member_that_did_not_get_its_answer_gets_it_again() -> None:
    driver = Driver()
    driver.join("a")
    driver.wait(1.0)
    member_id = driver.answers["a"].member_id
    driver.join("again", member_id, protocols=(JoinGroupProtocol("range", b"a"),))
    assert driver.answers["again"] == driver.answers["a"]
    assert driver.group.generation == 1


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_leader_that_comes_back_does_not_assign_again(version: int) -> None:
    driver = Driver()
    leader, _ = driver.start("a", "b", static=True)
    driver.join("back", client=replace(OLD, version=version), group_instance_id="a")
    back = driver.answers["back"]
    assert back.member_id != leader
    assert (back.error_code, back.generation_id, driver.group.phase) == (ErrorCode.NONE, 1, Phase.STABLE)
    if version == 9:
        assert back.skip_assignment
        assert back.leader == back.member_id
    else:
        assert back.leader == leader
        assert not back.members
    driver.sync("back-sync", back.member_id, 1)
    assert driver.answers["back-sync"].assignment == b"a"
    assert refusal(driver.group.heartbeat, leader, "a", 1, driver.now) is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(driver.group.check_commit, leader, "a", 1, 8, driver.now) is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(driver.join, "x", leader, group_instance_id="a") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_comes_back_with_other_protocols_makes_a_rebalance() -> None:
    driver = Driver()
    driver.join("a", names=("range", "sticky"), group_instance_id="a")
    driver.wait(1.0)
    driver.sync("a-sync", driver.answers["a"].member_id, 1)
    driver.join("back", group_instance_id="a", names=("sticky",))
    assert driver.answers["back"].generation_id == 2
    assert driver.answers["back"].protocol_name == "sticky"


def test_static_members_that_are_late_keep_their_place_until_their_session_ends() -> None:
    driver = Driver()
    first, second = driver.start("a", "b", static=True)
    driver.join("c")
    driver.wait(5.0)
    driver.join("a2", first, group_instance_id="a")
    driver.wait(4.9)
    assert driver.group.phase is Phase.PREPARING
    driver.wait(0.1)  # the session of b is over
    assert {each.member_id for each in driver.answers["a2"].members} == {first, driver.answers["c"].member_id}
    assert second not in driver.group.members


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    driver = Driver()
    driver.start("a", static=True)
    assert refusal(driver.group.leave, "", "none", driver.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(driver.group.leave, "other", "a", driver.now) is ErrorCode.FENCED_INSTANCE_ID
    driver.group.leave("", "a", driver.now)
    assert (driver.group.phase, driver.group.generation) == (Phase.EMPTY, 2)


def test_who_hangs_up_while_waiting_does_not_hold_up_the_others() -> None:
    driver = Driver(replace(SETTINGS, max_members=4))
    first, second = driver.start("a", "b")
    driver.join("new")
    driver.join("a2", first)
    driver.join("b2", second)
    assert driver.answers["a2"].generation_id == 2  # all three
    driver.join("newer")
    driver.join("a3", first)
    driver.group.withdraw("newer", driver.now)  # never was a member, and is none now
    driver.group.withdraw("a3", driver.now)  # may come back
    driver.join("a4", first)
    driver.group.leave(driver.answers["new"].member_id, None, driver.now)
    driver.join("b3", second)
    assert "a3" not in driver.answers
    assert {each.member_id for each in driver.answers["a4"].members} == {first, second}


def test_who_may_commit() -> None:
    driver = Driver()
    group = driver.group
    group.check_commit("", None, -1, 8, 0.0)  # an empty group: a consumer that assigns its partitions itself
    (member_id,) = driver.start("a")
    group.check_commit(member_id, None, 1, 8, driver.now)
    assert refusal(group.check_commit, "", None, -1, 8, driver.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(group.check_commit, member_id, None, 0, 8, driver.now) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(group.check_commit, "stranger", None, 1, 8, driver.now) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.join("b")
    group.check_commit(member_id, None, 1, 8, driver.now)  # before it joins again it may store how far it came
    driver.join("a2", member_id)
    assert group.phase is Phase.COMPLETING
    assert refusal(group.check_commit, member_id, None, 2, 8, driver.now) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    driver = Driver()
    (member_id,) = driver.start("a")
    for _ in range(5):
        driver.wait(9.0)
        driver.group.check_commit(member_id, None, 1, 8, driver.now)
    driver.wait(10.0)
    assert driver.group.phase is Phase.EMPTY


def test_a_sync_for_something_else_is_refused() -> None:
    driver = Driver()
    (member_id,) = driver.start("a")
    for wrong in (("consumer", "other"), ("connect", "range")):
        request = SyncGroupRequest("g", 1, member_id, None, *wrong)
        assert refusal(driver.group.sync, request, "t", driver.now) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stale = SyncGroupRequest("g", 0, member_id)
    assert refusal(driver.group.sync, stale, "t", driver.now) is ErrorCode.ILLEGAL_GENERATION
