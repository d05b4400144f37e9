"""Topics, groups and messages of the Kafka gateway, read from its tables, and one message written by hand."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from headgate.commitlog.configs import CONFIGS
from headgate.control.dashboard.messages import log_messages
from headgate.control.dashboard.stores import Stores, open_store, read_one
from headgate.control.requests import number
from headgate.gateway.groups.subscription import assigned_partitions
from headgate.model import ConnectError, UsageError
from headgate.postgres import open_connection

__all__ = ["BROWSED", "PRODUCED", "find_group", "find_messages", "find_topic", "produce", "read_gateway"]

BROWSED = ("partition", "offset", "text", "form")  # what of a topic's messages to show
PRODUCED = ("topic", "partition", "key", "key_form", "value", "value_form", "headers")
_SCHEMA = "kafka"
_SHOWN = 20
_SCANNED = 200  # where only some are wanted
_MOST_PARTITIONS = 16  # of which the newest messages are looked for at once
_MOST_OWNED = 20  # partitions of a member that are written out
_MOST_HEADERS = 50
_MOST_PARTITION = 2**31 - 1
_SETTINGS = {"statement_timeout": "5s"}
_CONNECT_S = 2


def read_gateway(stores: Stores, wanted: str = "") -> dict[str, Any]:
    """Return the topics and groups whose names contain a text."""
    if stores.gateway_url is None:
        return {}
    return read_one(stores.gateway_url, _SCHEMA, "gateway.sql", wanted=_text(wanted).lower()) or {}


def find_topic(stores: Stores, name: str) -> dict[str, Any] | None:
    """Return a topic with its partitions and settings; None if there is none."""
    found = _one(stores, "gateway_topic.sql", topic=_text(name))
    if found is not None:
        own = found["configs"]
        found["configs"] = [
            (each.name, own.get(each.name, each.default), each.name in own, each.documentation)
            for each in sorted(CONFIGS.values(), key=lambda each: (each.name not in own, each.name))
        ]
    return found


def find_group(stores: Stores, name: str) -> dict[str, Any] | None:
    """Return a group with its members and the lag of each partition, which name their owner; None if there is none."""
    found = _one(stores, "gateway_group.sql", group=_text(name))
    if found is None:
        return None
    owners: dict[tuple[str, int], str] = {}
    for member in found["members"]:
        owned = sorted(_owned(member))
        owners |= dict.fromkeys(owned, member["member_id"])
        member["owned_count"] = len(owned)
        member["owned"] = [f"{topic}:{partition}" for topic, partition in owned[:_MOST_OWNED]]
    for each in found["partitions"]:
        each["owner"] = owners.get((each["topic"], each["partition"]), "")
    return found


def _owned(member: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The partitions of a member: known to the gateway, or written by a leader, whose bytes may be anything."""
    if member["assigned"]:
        return [(str(topic), int(partition)) for topic, partition in member["assigned"]]
    try:
        return assigned_partitions(base64.b64decode(member["assignment"] or "", validate=True))
    except ValueError:
        return []


def find_messages(stores: Stores, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the messages of a topic that the arguments choose, the newest or those from an offset on."""
    found: dict[str, Any] = {"messages": [], "of": "", "note": "", "scanned": 0, "following": None, "wanted": arguments}
    topic = find_topic(stores, arguments.get("name", ""))
    if topic is None or stores.gateway_url is None:
        return found
    partition, offset = (_whole(arguments.get(name, "")) for name in ("partition", "offset"))
    if partition is None and (offset is not None or topic["partition_count"] > _MOST_PARTITIONS):
        partition = 0 if topic["partition_count"] == 1 else topic["fullest"]
    if partition is not None and partition >= topic["partition_count"]:
        return found | {"note": f"There is no partition {partition}: the topic has {topic['partition_count']}."}
    text = _text(arguments.get("text", "")).lower()
    with open_store(stores.gateway_url) as connection:
        read = log_messages(
            connection, topic["name"], _SCANNED if text else _SHOWN, partition=partition, offset=offset,
            form=arguments.get("form", ""),
        )  # fmt: skip
    shown = [each for each in read if not text or each.has(text)][:_SHOWN]
    return found | {
        "messages": shown,
        "scanned": len(read),
        "of": "all partitions" if partition is None else f"partition {partition}",
        "following": _following(partition, offset, [each.position for each in (read if text else shown)]),
        "note": _why_empty(topic, offset) if not read else "",
    }


def _following(partition: int | None, offset: int | None, positions: list[str]) -> tuple[int, int] | None:
    """Where to read on, behind the last of the messages that were read from an offset on."""
    if partition is None or offset is None or not positions:
        return None
    return partition, int(positions[-1].partition(":")[2]) + 1


def _why_empty(topic: Mapping[str, Any], offset: int | None) -> str:
    if any(name == "headgate.sql" and value == "false" for name, value, *_ in topic["configs"]):
        return "The topic is kept out of SQL (headgate.sql=false), by which this page reads: use a Kafka client."
    return "There is no message yet." if offset is None else "There is no message from this offset on."


def produce(stores: Stores, fields: Mapping[str, str]) -> str:
    """Write one message to a topic; the gateway appends it as soon as this is committed."""
    if stores.gateway_url is None:
        raise UsageError("the gateway is off", remedy="set enabled = true in [gateway]")
    topic = _text(fields.get("topic", ""))
    asked = {
        "topic": topic,
        "key": _bytes(fields.get("key", ""), fields.get("key_form", ""), "the key"),
        "value": _bytes(fields.get("value", ""), fields.get("value_form", ""), "the value"),
        "headers": Jsonb(_headers(fields.get("headers", ""))),
        "partition": _partition(fields.get("partition", "")),
    }
    statement = b"select kafka.produce(%(topic)s, %(key)s::bytea, %(value)s::bytea, %(headers)s, %(partition)s)"
    try:
        with open_connection(stores.gateway_url, "headgate dashboard", _SETTINGS, timeout_s=_CONNECT_S) as connection:
            connection.execute(statement, asked)
    except psycopg.Error as error:
        if error.sqlstate is None:  # not the server's words, in which there may be an address
            raise ConnectError(f"the message was not written: {type(error).__name__}", remedy="try again") from None
        why = error.diag.message_primary
        raise UsageError(f"the message was not written: {why}", remedy="correct it and try again") from None
    return f"one message was written to {topic}; the gateway appends it"


def _bytes(text: str, form: str, what: str) -> bytes | None:
    if form == "none":
        return None
    if form == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise UsageError(f"{what} is not in hex", remedy="write pairs of hexadecimal digits: 00 ff") from None
    if form not in ("", "text"):
        raise UsageError(f"{what} is text, hex or none", remedy="load the page again")
    return text.encode()


def _headers(text: str) -> list[tuple[str, str]]:
    """One `name: value` a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    pairs = [(name.strip(), value.strip()) for name, colon, value in (line.partition(":") for line in lines) if colon]
    if len(pairs) < len(lines) or "\0" in text:
        raise UsageError("a header is a name, a colon and a value", remedy="write one a line, such as trace: abc")
    if len(pairs) > _MOST_HEADERS:
        raise UsageError(f"more than {_MOST_HEADERS} headers", remedy="use a Kafka client")
    return pairs


def _one(stores: Stores, name: str, **asked: object) -> dict[str, Any] | None:
    return None if stores.gateway_url is None else read_one(stores.gateway_url, _SCHEMA, name, **asked)


def _partition(text: str) -> int | None:
    found = _whole(text)
    if found is not None and found > _MOST_PARTITION:
        raise UsageError(f"there is no partition {found}", remedy="leave it empty, or see the topic's page")
    return found


def _whole(text: str) -> int | None:
    """A number of a form; an empty field is none."""
    return number(text, 0) if text.strip() else None


def _text(text: str) -> str:
    """Make a text one that PostgreSQL can hold: without a NUL or half a character, and not long."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()[:300]
