"""What a stream is and should be: its description, its wanted configuration, and the difference between the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.model import HeadgateError, ProtocolError, StateError
from headgate.wire.nats import covers

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions

__all__ = ["StreamInfo", "additions", "drift_error", "drifts", "stream_config"]

_NANOSECONDS = 1_000_000_000


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
            )
        except (KeyError, TypeError, AttributeError):
            raise ProtocolError("JetStream sent a malformed stream description") from None


def stream_config(options: NatsOptions) -> dict[str, Any]:
    """The configuration to create the stream with."""
    # The server refuses a duplicate window that is longer than messages live.
    window_s = min(options.duplicate_window_s, options.max_age_s or options.duplicate_window_s)
    return {
        "name": options.stream,
        "subjects": list(options.subjects),
        "retention": "limits",
        "storage": options.storage,
        "num_replicas": options.replicas,
        "discard": options.discard,
        "max_age": round(options.max_age_s * _NANOSECONDS),
        "max_bytes": options.max_bytes,
        "max_msgs": options.max_msgs,
        "duplicate_window": round(window_s * _NANOSECONDS),
        "allow_direct": True,
        "allow_batched": options.acks == "batch",
    }


def additions(info: StreamInfo, options: NatsOptions) -> dict[str, Any]:
    """Changes that only add: further subjects, a longer duplicate window, permission for batches.

    They take nothing from whoever else uses the stream, so they are made without asking.
    """
    wanted = stream_config(options)
    changes: dict[str, Any] = {}
    missing = [subject for subject in options.subjects if not any(covers(own, subject) for own in info.subjects)]
    if missing:
        kept = [own for own in info.subjects if not any(covers(new, own) for new in missing)]
        changes["subjects"] = kept + missing
    if wanted["duplicate_window"] > info.config.get("duplicate_window", 0):
        changes["duplicate_window"] = wanted["duplicate_window"]
    if wanted["allow_batched"] and not info.config.get("allow_batched"):
        changes["allow_batched"] = True
    return changes


def drifts(info: StreamInfo, options: NatsOptions) -> Iterator[str]:
    """What cannot be reconciled without a decision, one sentence each."""
    wanted = stream_config(options)
    for name in ("storage", "num_replicas", "discard", "max_age", "max_bytes", "max_msgs"):
        actual = info.config.get(name, 0)
        if actual != wanted[name]:
            yield f"{name} is {actual}, wanted {wanted[name]}"
    if info.retention != "limits":
        yield f"retention is {info.retention}: the stream may drop messages that nobody has read"
    if info.config.get("no_ack"):
        yield "no_ack is set: the stream never confirms that it stored a message"
    if info.config.get("sealed"):
        yield "the stream is sealed"
    if info.config.get("mirror"):
        yield "the stream is a mirror and takes no messages"


def drift_error(info: StreamInfo, found: list[str]) -> HeadgateError:
    """The error for a stream that differs from the options."""
    return StateError(
        f"stream {info.name!r} differs from its options: {'; '.join(found)}",
        remedy=f"set the options to what the stream is, or change it (nats stream edit {info.name}), or use another",
        where=f"stream {info.name}",
    )
