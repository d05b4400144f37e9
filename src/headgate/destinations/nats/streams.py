"""What a stream is and should be: its description, its wanted configuration, and the difference between the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.model import HeadgateError, ProtocolError, StateError
from headgate.wire.nats import covers

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions

__all__ = ["StreamInfo", "changes", "drift_error", "drifts", "stream_config"]

_NANOSECONDS = 1_000_000_000
_DUPLICATE_WINDOW_S = 120.0

# Deny_delete, deny_purge, republish, compression, placement, allow_msg_ttl, max_consumers and first_seq are not here:
# they neither drop, move nor refuse what we store.
_REFUSED = {
    "no_ack": "no_ack is set: the stream never confirms that it stored a message",
    "sealed": "the stream is sealed",
    "mirror": "the stream is a mirror and takes no messages",
    "allow_msg_counter": "allow_msg_counter is set: the stream takes counters only",
}
_REFUSED_IF_EXCLUSIVE = {
    "sources": "the stream has sources: their messages would come between ours",
    "subject_transform": "subject_transform is set: messages would be stored under other subjects than ours",
    "allow_rollup_hdrs": "allow_rollup_hdrs is set: one message of anybody may erase those before it",
    "subject_delete_marker_ttl": "subject_delete_marker_ttl is set: the server would put markers between our messages",
}


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as the server describes it. `config` is the server's own JSON, needed to change one thing in it."""

    name: str
    subjects: tuple[str, ...]
    storage: str
    replicas: int
    retention: str
    discard: str
    max_age_s: float
    max_bytes: int
    max_msgs: int
    duplicate_window_s: float
    messages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    config: Mapping[str, Any] = field(repr=False)
    created: str = ""  # as the server writes it: tells the stream from another one of its name
    deleted_count: int = 0  # messages that are gone from between the first and the last

    @classmethod
    def parse(cls, answer: Mapping[str, Any]) -> StreamInfo:
        """Read the answer to STREAM.INFO, CREATE or UPDATE."""
        try:
            config, state = answer["config"], answer["state"]
            return cls(
                name=config["name"],
                subjects=tuple(config.get("subjects") or ()),
                storage=config["storage"],
                replicas=config["num_replicas"],
                retention=config["retention"],
                discard=config["discard"],
                max_age_s=config.get("max_age", 0) / _NANOSECONDS,
                max_bytes=config["max_bytes"],
                max_msgs=config["max_msgs"],
                duplicate_window_s=config.get("duplicate_window", 0) / _NANOSECONDS,
                messages=state["messages"],
                bytes=state["bytes"],
                first_sequence=state["first_seq"],
                last_sequence=state["last_seq"],
                config=config,
                created=answer.get("created", ""),
                deleted_count=state.get("num_deleted", 0),
            )
        except (KeyError, TypeError, AttributeError):
            raise ProtocolError("JetStream sent a malformed stream description") from None


def stream_config(options: NatsOptions) -> dict[str, Any]:
    """The configuration to create the stream with."""
    max_age_s = options.max_age_s or 0.0
    # The server refuses a duplicate window that is longer than messages live.
    window_s = _DUPLICATE_WINDOW_S if options.duplicate_window_s is None else options.duplicate_window_s
    return {
        "name": options.stream,
        "subjects": list(options.subjects),
        "retention": "limits",
        "storage": options.storage,
        "num_replicas": options.replicas,
        "discard": options.discard or "new",
        "max_age": round(max_age_s * _NANOSECONDS),
        "max_bytes": -1 if options.max_bytes is None else options.max_bytes,
        "max_msgs": -1 if options.max_msgs is None else options.max_msgs,
        "duplicate_window": round(min(window_s, max_age_s or window_s) * _NANOSECONDS),
        "allow_direct": True,
    }


def changes(info: StreamInfo, options: NatsOptions, *, exclusive: bool = False) -> dict[str, Any]:
    """What to change in a stream that is there: additions always, limits where an option sets them.

    A shared stream holds messages of others, so there limits are only raised; `drifts` refuses the rest.
    """
    wanted, found = stream_config(options), _additions(info, options)
    found |= {name: wanted[name] for name in _limits_to_set(info, options) if exclusive or _raises(info, wanted, name)}
    window, max_age = wanted["duplicate_window"], found.get("max_age", info.config.get("max_age", 0))
    window = min(window, max_age or window)
    actual = info.config.get("duplicate_window", 0)
    if window > actual or (options.duplicate_window_s and window < actual) or 0 < max_age < actual:
        found["duplicate_window"] = window
    return found


def _additions(info: StreamInfo, options: NatsOptions) -> dict[str, Any]:
    """Further subjects: they take nothing from anybody else."""
    found: dict[str, Any] = {}
    missing = [subject for subject in options.subjects if not any(covers(own, subject) for own in info.subjects)]
    if missing:
        kept = [own for own in info.subjects if not any(covers(new, own) for new in missing)]
        found["subjects"] = kept + missing
    return found


def _limits_to_set(info: StreamInfo, options: NatsOptions) -> Iterator[str]:
    """Limits that an option sets and that the stream has otherwise. What no option sets is the stream's own affair."""
    wanted = stream_config(options)
    given = {
        "max_age": options.max_age_s,
        "max_bytes": options.max_bytes,
        "max_msgs": options.max_msgs,
        "discard": options.discard,
    }
    for name, value in given.items():
        if value is not None and info.config.get(name, 0) != wanted[name]:
            yield name


def _raises(info: StreamInfo, wanted: Mapping[str, Any], name: str) -> bool:
    """Whether the wanted limit keeps everything that the stream's own one keeps."""
    if name == "discard":
        return bool(wanted[name] == "new")
    return bool(wanted[name] <= 0 or 0 < info.config.get(name, 0) <= wanted[name])


def drifts(info: StreamInfo, options: NatsOptions, *, exclusive: bool = False, max_payload: int = 0) -> Iterator[str]:
    """What cannot be reconciled without a decision, one sentence each."""
    wanted, config = stream_config(options), info.config
    for name in ("storage", "num_replicas"):
        if config.get(name) != wanted[name]:
            yield f"{name} is {config.get(name)}, wanted {wanted[name]}"
    if not exclusive:
        for name in _limits_to_set(info, options):
            if not _raises(info, wanted, name):
                yield f"{name} is {config.get(name, 0)}, wanted {wanted[name]}, which may drop messages of others"
    if options.discard is None and info.discard == "old" and (info.max_bytes > 0 or info.max_msgs > 0):
        yield "discard is old: at its limit the stream drops messages that were acknowledged"
    for name, sentence in _REFUSED.items():
        if config.get(name):
            yield sentence
    if info.retention != "limits":
        yield f"retention is {info.retention}: the stream may drop messages that nobody has read"
    if config.get("persist_mode") == "async":
        yield "persist_mode is async: the stream confirms messages before it has stored them"
    if exclusive:
        yield from _broken_promises(config, max_payload)


def _broken_promises(config: Mapping[str, Any], max_payload: int) -> Iterator[str]:
    """Settings under which a stream of one pipeline loses, moves or mixes in messages, or cannot take them."""
    for name, sentence in _REFUSED_IF_EXCLUSIVE.items():
        if config.get(name):
            yield sentence
    if config.get("max_msgs_per_subject", -1) > 0:
        yield "max_msgs_per_subject is set: changes of a row would vanish from the middle of the stream"
    if 0 < config.get("max_msg_size", -1) < max_payload:
        yield f"max_msg_size is {config['max_msg_size']}, less than the server's max_payload of {max_payload}"


def drift_error(info: StreamInfo, found: list[str]) -> HeadgateError:
    """The error for a stream that differs from the options."""
    return StateError(
        f"stream {info.name!r} differs from its options: {'; '.join(found)}",
        remedy=f"set the options to what the stream is, or change it (nats stream edit {info.name}), or use another",
        where=f"stream {info.name}",
    )
