"""Consumer groups, rule by rule: epochs, revocation before assignment, static members, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.gateway.groups.consumer import Topics
from headgate.gateway.groups.group import Client
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headgate.wire.kafka.refusal import Refused
from tests.unit.groups.group_drivers import ConsumerDriver as Driver


def share(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    """The partitions that an answer tells; None if it tells nothing."""
    if answer.assignment is None:
        return None
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


def test_what_goes_to_another_is_given_back_first() -> None:
    driver = Driver()
    first = driver.beat("a")
    assert (first.member_epoch, share(first)) == (1, [0, 1, 2, 3])
    second = driver.beat("b")
    assert (second.member_epoch, share(second)) == (2, [])
    told = driver.beat("a", 1)
    assert (told.member_epoch, len(share(told) or [])) == (1, 2)
    kept = share(told) or []
    assert share(driver.beat("b", 2)) is None
    assert driver.group.state == "Reconciling"
    still = driver.beat("a", 1, owns=[0, 1, 2, 3])
    assert still.member_epoch == 1
    done = driver.beat("a", 1, owns=kept)
    assert done.member_epoch == 2
    got = driver.beat("b", 2)
    assert sorted([*kept, *(share(got) or [])]) == [0, 1, 2, 3]
    assert driver.group.state == "Stable"


def test_who_does_not_give_back_in_time_is_out() -> None:
    driver = Driver()
    driver.beat("a")
    driver.beat("b")
    driver.beat("a", 1)
    for _ in range(10):
        driver.now += 1.0
        driver.group.tick(driver.now)
    assert "a" not in driver.group.members
    assert driver.refusal("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert share(driver.beat("b", 2)) == [0, 1, 2, 3]


def test_epochs_that_cannot_be_are_fenced() -> None:
    driver = Driver()
    driver.beat("a")
    assert driver.refusal("a", 9) is ErrorCode.FENCED_MEMBER_EPOCH
    driver.partitions = 5
    assert driver.beat("a", 1).member_epoch == 2
    again = driver.beat("a", 1, owns=[0, 1, 2, 3])  # the answer was lost
    assert (again.member_epoch, share(again)) == (2, [0, 1, 2, 3, 4])
    assert driver.refusal("a", 1) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"owns": [1]}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
    ids=["no-timeout", "no-subscription", "owns", "assignor"],
)
def test_a_join_that_does_not_fit_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    driver = Driver()
    assert driver.refusal("a", **fields) is code
    assert driver.group.is_empty


def test_a_group_has_room_for_so_many() -> None:
    driver = Driver()
    driver.beat("a")
    driver.beat("b")
    assert driver.refusal("c") is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_says_it_will_be_back_keeps_its_share() -> None:
    driver = Driver()
    epoch = driver.beat("a", instance_id="i").member_epoch
    assert driver.refusal("b", instance_id="i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert driver.refusal("b", -2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat("a", -2, instance_id="i").member_epoch == -2
    before = driver.group.generation
    back = driver.beat("b", instance_id="i")
    assert (share(back), back.member_epoch, driver.group.generation) == ([0, 1, 2, 3], epoch, before)
    assert driver.refusal("a", epoch, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_given_up() -> None:
    driver = Driver()
    driver.beat("a", instance_id="i")
    driver.beat("a", -2, instance_id="i")
    driver.now += 46
    driver.group.tick(driver.now)
    assert driver.group.state == "Empty"
    assert share(driver.beat("b", instance_id="i")) == [0, 1, 2, 3]


def test_who_may_commit_and_fetch() -> None:
    driver = Driver()
    group = driver.group
    group.check_commit("", None, -1, 8, 0.0)
    epoch = driver.beat("a").member_epoch
    group.check_commit("a", None, epoch, 9, 0.0)
    group.check_fetch("a", epoch)
    group.check_fetch(None, -1)
    cases = (("a", epoch - 1, 9), ("stranger", epoch, 9), ("a", epoch, 8), ("", -1, 9))
    codes = []
    for member_id, at, version in cases:
        with pytest.raises(Refused) as refused:
            group.check_commit(member_id, None, at, version, 0.0)
        codes.append(refused.value.code)
    assert codes == [
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    with pytest.raises(Refused):
        group.check_fetch("a", epoch + 1)


def test_an_expression_is_a_subscription_too() -> None:
    driver = Driver()
    answer = driver.beat("a", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert share(answer) == [0, 1, 2, 3]
    assert driver.group.subscribed() == {"t"}
    assert share(driver.beat("a", answer.member_epoch, subscribed_topic_regex="")) == []


def test_a_heartbeat_that_changes_nothing_stores_nothing() -> None:
    driver = Driver()
    answer = driver.beat("a")
    request = ConsumerGroupHeartbeatRequest("g", "a", answer.member_epoch)
    driver.group.heartbeat(request, Client("c", "h", 1), Topics(driver.find, {}), driver.now)
    assert driver.group.take_changes() is None
