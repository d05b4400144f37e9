"""What a request about a group may say: names and texts that PostgreSQL can keep."""

from __future__ import annotations

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["check_ids", "check_name", "check_texts"]

_MAX_NAME_BYTES = 1_000  # of groups and members: both together must fit into an index


def check_name(group_id: str) -> None:
    if not group_id or "\0" in group_id or len(group_id.encode()) > _MAX_NAME_BYTES:
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"a group needs a name of at most {_MAX_NAME_BYTES} bytes")


def check_ids(*ids: str | None) -> None:
    check_texts(*(each or "" for each in ids))
    if any(len((each or "").encode()) > _MAX_NAME_BYTES for each in ids):
        raise Refused(ErrorCode.INVALID_REQUEST, f"a member's id has at most {_MAX_NAME_BYTES} bytes")


def check_texts(*texts: str) -> None:
    if any("\0" in text for text in texts):
        raise Refused(ErrorCode.INVALID_REQUEST, "a text contains the character 0, which PostgreSQL cannot store")
