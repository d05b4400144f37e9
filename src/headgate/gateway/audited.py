"""What administrative requests have changed, for the audit log: names of things and of settings, never their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from headgate.wire.kafka import Body
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.commits import OffsetDeleteRequest
from headgate.wire.kafka.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from headgate.wire.kafka.messages.groups import DeleteGroupsRequest
from headgate.wire.kafka.messages.security import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)
from headgate.wire.kafka.messages.storage import DeleteRecordsRequest
from headgate.wire.kafka.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest

__all__ = ["Change", "changes_of"]

Change: TypeAlias = dict[str, str]

_KINDS = {2: "topic", 3: "group", 4: "broker", 8: "broker", 5: "transactional id", 16: "client metrics", 32: "group"}
_CODES = frozenset(ErrorCode)
_ACL_KINDS = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}


def changes_of(request: Body, response: Body | None) -> list[Change]:
    """Return what a request has changed or tried to, with its outcome; nothing if it only asks or tries."""
    tell = _TELL.get(type(request))
    if tell is None or response is None or getattr(request, "validate_only", False):
        return []
    return list(tell(request, response))


def _change(kind: str, name: str | None, code: int, **more: str) -> Change:
    outcome = ErrorCode(code).name if code in _CODES else str(code)
    return {"kind": kind, "what": name or "", "outcome": outcome, **more}


def _created_topics(request: Any, response: Any) -> Iterable[Change]:
    return (_change("topic", each.name, each.error_code) for each in response.topics)


def _deleted_topics(request: Any, response: Any) -> Iterable[Change]:
    return (_change("topic", each.name or str(each.topic_id), each.error_code) for each in response.responses)


def _partitions(request: Any, response: Any) -> Iterable[Change]:
    counts = {each.name: str(each.count) for each in request.topics}
    return (
        _change("topic", each.name, each.error_code, partitions=counts.get(each.name, "")) for each in response.results
    )


def _configs(request: Any, response: Any) -> Iterable[Change]:
    keys = {
        (each.resource_type, each.resource_name): ",".join(config.name for config in each.configs)
        for each in request.resources
    }
    for each in response.responses:
        kind = _KINDS.get(each.resource_type, str(each.resource_type))
        settings = keys.get((each.resource_type, each.resource_name), "")
        yield _change(kind, each.resource_name, each.error_code, settings=settings)


def _records(request: Any, response: Any) -> Iterable[Change]:
    for topic in response.topics:
        for each in topic.partitions:
            before = str(each.low_watermark)
            yield _change("records", f"{topic.name}/{each.partition_index}", each.error_code, before=before)


def _groups(request: Any, response: Any) -> Iterable[Change]:
    return (_change("group", each.group_id, each.error_code) for each in response.results)


def _offsets(request: Any, response: Any) -> Iterable[Change]:
    if response.error_code:
        yield _change("offsets", request.group_id, response.error_code)
    for topic in response.topics:
        for each in topic.partitions:
            place = f"{topic.name}/{each.partition_index}"
            yield _change("offsets", request.group_id, each.error_code, partition=place)


def _made_acls(request: Any, response: Any) -> Iterable[Change]:
    for asked, each in zip(request.creations, response.results, strict=False):
        kind = _ACL_KINDS.get(asked.resource_type, str(asked.resource_type))
        yield _change("acl", f"{kind} {asked.resource_name}", each.error_code, of=asked.principal)


def _deleted_acls(request: Any, response: Any) -> Iterable[Change]:
    for result in response.filter_results:
        if result.error_code:
            yield _change("acl", "", result.error_code)
        for each in result.matching_acls:
            kind = _ACL_KINDS.get(each.resource_type, str(each.resource_type))
            yield _change("acl", f"{kind} {each.resource_name}", each.error_code, of=each.principal)


def _quotas(request: Any, response: Any) -> Iterable[Change]:
    keys = {each.entity: ",".join(op.key for op in each.ops) for each in request.entries}
    for each in response.entries:
        name = ", ".join(f"{part.entity_type} {part.entity_name or '(default)'}" for part in each.entity)
        yield _change("quota", name, each.error_code, settings=keys.get(each.entity, ""))


def _users(request: Any, response: Any) -> Iterable[Change]:
    return (_change("user", each.user, each.error_code) for each in response.results)


_TELL: dict[type[Body], Callable[[Any, Any], Iterable[Change]]] = {
    CreateTopicsRequest: _created_topics,
    DeleteTopicsRequest: _deleted_topics,
    CreatePartitionsRequest: _partitions,
    AlterConfigsRequest: _configs,
    IncrementalAlterConfigsRequest: _configs,
    DeleteRecordsRequest: _records,
    DeleteGroupsRequest: _groups,
    OffsetDeleteRequest: _offsets,
    CreateAclsRequest: _made_acls,
    DeleteAclsRequest: _deleted_acls,
    AlterClientQuotasRequest: _quotas,
    AlterUserScramCredentialsRequest: _users,
}
