"""What can be set for a topic: names, types, defaults, and what the gateway makes of them.

A topic stores only what somebody set. Admin tools show the rest with these defaults.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = [
    "CONFIGS",
    "ConfigType",
    "TopicConfig",
    "check_configs",
    "is_compacted",
    "is_deleted",
    "long_of",
    "retention_class",
    "value_of",
]

_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_DAY_MS = 24 * 60 * 60 * 1000


class ConfigType(enum.IntEnum):
    """The types of DescribeConfigs, by the protocol's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One setting of a topic."""

    name: str
    type: ConfigType
    default: str
    documentation: str
    check: Callable[[str], bool]
    expected: str


def _integer(low: int, high: int) -> tuple[Callable[[str], bool], str]:
    def check(text: str) -> bool:
        digits = text.removeprefix("-")
        return digits.isascii() and digits.isdigit() and len(digits) < 20 and low <= int(text) <= high

    return check, f"a whole number from {low} to {high}"


def _choice(*allowed: str) -> tuple[Callable[[str], bool], str]:
    return allowed.__contains__, f"one of {', '.join(allowed)}"


def _policy(text: str) -> bool:
    parts = [part.strip() for part in text.split(",")] if text else []
    return bool(parts) and set(parts) <= {"compact", "delete"}


def _ratio(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def _anything(text: str) -> bool:
    return True


_BOOL = _choice("true", "false")
_LONG = _integer(0, _MAX_LONG)
_MS = _integer(1, _MAX_LONG)
_KEPT = "Known so that tools may set it; the log in PostgreSQL has no use for it."

CONFIGS: Mapping[str, TopicConfig] = {
    name: TopicConfig(name, kind, default, text, *check)
    for name, kind, default, check, text in (
        (
            "cleanup.policy",
            ConfigType.LIST,
            "delete",
            (_policy, "delete, compact, or both"),
            "What happens to old records: `delete` drops them by age and size, `compact` keeps the last of each key.",
        ),
        (
            "retention.ms",
            ConfigType.LONG,
            str(7 * _DAY_MS),
            _integer(-1, _MAX_LONG),
            "How long records are kept; -1 for ever. Topics with the same value share segments.",
        ),
        (
            "retention.bytes",
            ConfigType.LONG,
            "-1",
            _integer(-1, _MAX_LONG),
            "How many bytes a partition keeps; -1 for any number.",
        ),
        (
            "max.message.bytes",
            ConfigType.INT,
            "1048588",
            _integer(0, _MAX_INT),
            "The largest batch that is accepted, in bytes as sent.",
        ),
        (
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            _choice("CreateTime", "LogAppendTime"),
            "Whose clock dates the records: the producer's or the gateway's.",
        ),
        (
            "message.timestamp.before.max.ms",
            ConfigType.LONG,
            str(_MAX_LONG),
            _LONG,
            "How far a record's timestamp may lie behind the gateway's clock.",
        ),
        (
            "message.timestamp.after.max.ms",
            ConfigType.LONG,
            str(60 * 60 * 1000),
            _LONG,
            "How far a record's timestamp may lie ahead of the gateway's clock.",
        ),
        (
            "compression.type",
            ConfigType.STRING,
            "producer",
            _choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            "Batches are kept as their producer compressed them, whatever is set here.",
        ),
        (
            "delete.retention.ms",
            ConfigType.LONG,
            str(_DAY_MS),
            _LONG,
            "How long compaction leaves a record without a value, so that readers see that its key is gone.",
        ),
        (
            "min.compaction.lag.ms",
            ConfigType.LONG,
            "0",
            _LONG,
            "How old a batch must be before compaction looks at it.",
        ),
        (
            "max.compaction.lag.ms",
            ConfigType.LONG,
            str(_MAX_LONG),
            _MS,
            _KEPT,
        ),
        (
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            "0.5",
            (_ratio, "a number from 0 to 1"),
            "How large a share must be new before a partition is compacted again.",
        ),
        ("min.insync.replicas", ConfigType.INT, "1", _integer(1, _MAX_INT), _KEPT),
        ("segment.ms", ConfigType.LONG, str(7 * _DAY_MS), _MS, _KEPT),
        ("segment.bytes", ConfigType.INT, str(1 << 30), _integer(14, _MAX_INT), _KEPT),
        ("segment.index.bytes", ConfigType.INT, str(10 << 20), _integer(4, _MAX_INT), _KEPT),
        ("segment.jitter.ms", ConfigType.LONG, "0", _LONG, _KEPT),
        ("file.delete.delay.ms", ConfigType.LONG, "60000", _LONG, _KEPT),
        ("flush.messages", ConfigType.LONG, str(_MAX_LONG), _MS, _KEPT),
        ("flush.ms", ConfigType.LONG, str(_MAX_LONG), _LONG, _KEPT),
        ("index.interval.bytes", ConfigType.INT, "4096", _integer(0, _MAX_INT), _KEPT),
        ("preallocate", ConfigType.BOOLEAN, "false", _BOOL, _KEPT),
        ("unclean.leader.election.enable", ConfigType.BOOLEAN, "false", _BOOL, _KEPT),
        ("remote.storage.enable", ConfigType.BOOLEAN, "false", _choice("false"), _KEPT),
        ("local.retention.ms", ConfigType.LONG, "-2", _integer(-2, _MAX_LONG), _KEPT),
        ("local.retention.bytes", ConfigType.LONG, "-2", _integer(-2, _MAX_LONG), _KEPT),
        (
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            "",
            (_anything, "a list"),
            _KEPT,
        ),
        (
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            "",
            (_anything, "a list"),
            _KEPT,
        ),
        ("message.downconversion.enable", ConfigType.BOOLEAN, "true", _BOOL, _KEPT),
        (
            "headgate.async.commit",
            ConfigType.BOOLEAN,
            "false",
            _BOOL,
            "Acknowledge before the disk has it, as Kafka does. Works while all topics that are written have it.",
        ),
        (
            "headgate.sql",
            ConfigType.BOOLEAN,
            "true",
            _BOOL,
            "Whether `kafka.messages` shows this topic. Compressed batches then take the space of plain ones, too.",
        ),
    )
}


def check_configs(configs: Mapping[str, str]) -> None:
    """Raise `Refused` with INVALID_CONFIG unless all names are known and all values are allowed."""
    for name, value in configs.items():
        known = CONFIGS.get(name)
        if known is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if not known.check(value) or not _is_storable(value):
            raise Refused(ErrorCode.INVALID_CONFIG, f"Invalid value {value[:100]} for {name}: not {known.expected}")


def _is_storable(value: str) -> bool:
    """All that settings say is ASCII, and PostgreSQL has no text with a NUL."""
    return "\0" not in value and value.isascii()


def value_of(configs: Mapping[str, str], name: str) -> str:
    """What counts: what was set, else the default."""
    return configs.get(name, CONFIGS[name].default)


def long_of(configs: Mapping[str, str], name: str) -> int:
    return int(value_of(configs, name))


def is_compacted(configs: Mapping[str, str]) -> bool:
    return "compact" in value_of(configs, "cleanup.policy")


def is_deleted(configs: Mapping[str, str]) -> bool:
    """Whether age and size limit the topic."""
    return "delete" in value_of(configs, "cleanup.policy")


def retention_class(configs: Mapping[str, str]) -> tuple[str, int | None]:
    """The class of a topic's segments, and after how many milliseconds they are done with."""
    if is_compacted(configs):
        return "compact", None
    keep_ms = long_of(configs, "retention.ms")
    return ("forever", None) if keep_ms < 0 else (f"delete {keep_ms}", keep_ms)
