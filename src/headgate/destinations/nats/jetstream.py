"""Small, synchronous JetStream administration: streams, the account, single messages.

with JetStream.open(options) as jetstream:
    jetstream.ensure_stream(options)
    last = jetstream.last_message(options.stream)
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from headgate.destinations.nats.connection import Connection
from headgate.destinations.nats.errors import NO_RESPONDERS, api_error
from headgate.destinations.nats.options import check_stream_name
from headgate.destinations.nats.streams import StreamInfo, changes, drift_error, drifts, stream_config
from headgate.model import DependencyError, ProtocolError
from headgate.wire.nats import (
    ApiError,
    Headers,
    Msg,
    PubAck,
    encode_headers,
    parse_api_error,
    parse_headers,
    parse_pub_ack,
)

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions

__all__ = ["AccountInfo", "JetStream", "StoredMessage"]

_log = logging.getLogger(__name__)

_STREAM_NOT_FOUND = 10059
_STREAM_EXISTS = 10058
_NO_MESSAGE = 10037
_STORE_FAILED = 10049
# nats-server clears the directory of a deleted stream behind its answer, and a creation at that moment fails.
_AT_ONCE = 500  # requests on their way
_STORE_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """What the account may use and uses. A limit of -1 means none."""

    storage_bytes: int
    storage_limit_bytes: int
    memory_bytes: int
    memory_limit_bytes: int
    streams: int
    streams_limit: int
    api_level: int
    max_payload: int

    @property
    def storage_left_bytes(self) -> int | None:
        """Bytes of file storage that the account may still use; None without a limit."""
        return None if self.storage_limit_bytes < 0 else max(0, self.storage_limit_bytes - self.storage_bytes)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a stream."""

    subject: str
    sequence: int
    payload: bytes
    headers: Headers = field(default_factory=Headers)
    time: str = ""  # RFC 3339, as the server gives it

    @property
    def message_id(self) -> str:
        """The `Nats-Msg-Id` it was published with."""
        return self.headers.get("Nats-Msg-Id")


class JetStream:
    """The JetStream API over one connection."""

    def __init__(self, connection: Connection, *, domain: str = "", timeout_s: float = 5.0) -> None:
        self._connection = connection
        self._prefix = f"$JS.{domain}.API" if domain else "$JS.API"
        self._timeout_s = timeout_s

    @classmethod
    def open(cls, options: NatsOptions) -> Self:
        """Connect; the timeout for requests is that for connecting."""
        return cls(Connection.open(options), domain=options.domain, timeout_s=options.connect_timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def account(self) -> AccountInfo:
        """Usage and limits of the account; raises `DependencyError` if JetStream is not enabled."""
        answer = self._call("INFO")
        limits = answer.get("limits") or {}
        return AccountInfo(
            storage_bytes=_number(answer, "storage"),
            storage_limit_bytes=_number(limits, "max_storage", -1),
            memory_bytes=_number(answer, "memory"),
            memory_limit_bytes=_number(limits, "max_memory", -1),
            streams=_number(answer, "streams"),
            streams_limit=_number(limits, "max_streams", -1),
            api_level=_number(answer.get("api") or {}, "level"),
            max_payload=self._connection.info.max_payload,
        )

    def ensure_stream(self, options: NatsOptions, *, exclusive: bool = False) -> StreamInfo:
        """Create the stream if it is missing, change it to what the options set, or refuse what cannot be changed.

        `exclusive`: one pipeline has the stream for itself, so its limits may be lowered, and whatever takes messages
        from its middle is refused.
        """
        info = self._create(stream_config(options))
        found = list(drifts(info, options, exclusive=exclusive, max_payload=self._connection.info.max_payload))
        if found:
            raise drift_error(info, found)
        wanted = changes(info, options, exclusive=exclusive)
        if wanted:
            _log.info("stream changed", extra={"stream": info.name, "settings": ", ".join(sorted(wanted))})
            info = self.update_stream({**info.config, **wanted})
        return info

    def create_stream(self, config: Mapping[str, Any]) -> StreamInfo:
        """Create a stream from a server-side configuration, or return the one of that name as it is."""
        return self._create(config)

    def update_stream(self, config: Mapping[str, Any]) -> StreamInfo:
        """Change a stream to a server-side configuration."""
        return StreamInfo.parse(self._call(f"STREAM.UPDATE.{check_stream_name(str(config['name']))}", config))

    def stream_info(self, name: str) -> StreamInfo | None:
        """The stream, or None if there is none of that name."""
        answer = self._ask(f"STREAM.INFO.{check_stream_name(name)}")
        if isinstance(answer, ApiError):
            if answer.err_code == _STREAM_NOT_FOUND:
                return None
            raise api_error(answer, self._connection.where)
        return StreamInfo.parse(answer)

    def last_deleted(self, name: str) -> int:
        """The highest sequence that is gone from between the stream's first and last; 0 for none."""
        answer = self._call(f"STREAM.INFO.{check_stream_name(name)}", {"deleted_details": True})
        deleted: list[int] = (answer.get("state") or {}).get("deleted") or []
        return max(deleted, default=0)

    def stream_names(self, subject: str) -> list[str]:
        """The streams that take a subject, wildcards included."""
        names = self._call("STREAM.NAMES", {"subject": subject}).get("streams") or []
        return [str(name) for name in names]

    def delete_stream(self, name: str) -> bool:
        """Delete a stream with all it holds; False if there was none."""
        answer = self._ask(f"STREAM.DELETE.{check_stream_name(name)}")
        if isinstance(answer, ApiError):
            if answer.err_code == _STREAM_NOT_FOUND:
                return False
            raise api_error(answer, self._connection.where)
        return True

    def purge_stream(self, name: str, subject: str = "") -> int:
        """Delete the messages of a stream, or of one subject; returns how many."""
        body = {"filter": subject} if subject else {}
        return _number(self._call(f"STREAM.PURGE.{check_stream_name(name)}", body), "purged")

    def last_message(self, stream: str, subject: str = ">") -> StoredMessage | None:
        """The newest message of a stream, or of a subject in it (wildcards allowed); None if there is none."""
        return self._get_message(stream, {"last_by_subj": subject})

    def message(self, stream: str, sequence: int) -> StoredMessage | None:
        """The message at a sequence; None if it is not there (any more)."""
        return self._get_message(stream, {"seq": sequence})

    def message_ids(self, stream: str, behind: str) -> set[str]:
        """The ids of the newest messages, back to the first one that is not greater than `behind`.

        All messages with greater ids must lie behind all others. Where they begin is found by halving.
        """
        info = self.stream_info(stream)
        if info is None or not info.messages:
            return set()
        low, high = info.first_sequence, info.last_sequence + 1
        while low < high:
            middle = (low + high) // 2
            message = self._get_message(stream, {"seq": middle, "next_by_subj": ">"})
            if message is None or message.message_id > behind:
                high = middle
            else:
                low = message.sequence + 1
        return set(self._ids(stream, low, info.last_sequence))

    def _ids(self, stream: str, first: int, last: int) -> Iterator[str]:
        """The ids of the messages from one sequence to another; some may be gone from between."""
        subject = f"{self._prefix}.STREAM.MSG.GET.{check_stream_name(stream)}"
        for start in range(first, last + 1, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, last + 1))
            asked = [json.dumps({"seq": number}).encode() for number in numbers]
            for answer in self._connection.request_all(subject, asked, timeout_s=self._timeout_s):
                message = self._message_of(self._answer(answer))
                if message is not None:
                    yield message.message_id

    def publish(self, subject: str, payload: bytes, headers: tuple[tuple[str, str], ...] = ()) -> PubAck:
        """Store one message and wait; for configuration and tests, not for data."""
        block = encode_headers(headers) if headers else b""
        message = self._connection.request(subject, payload, headers=block, timeout_s=self._timeout_s)
        if _nobody_listens(message):
            raise api_error(ApiError(404, _STREAM_NOT_FOUND, "no stream takes the subject"), self._connection.where)
        ack = parse_pub_ack(message.payload)
        if isinstance(ack, PubAck):
            return ack
        if isinstance(ack, ApiError):
            raise api_error(ack, self._connection.where)
        raise ProtocolError("JetStream answered a publish with a batch message", where=self._connection.where)

    def _create(self, config: Mapping[str, Any]) -> StreamInfo:
        name = check_stream_name(str(config["name"]))
        info = self.stream_info(name)
        if info:
            return info
        answer = self._ask(f"STREAM.CREATE.{name}", config)
        for pause_s in _STORE_PAUSES_S:
            if not (isinstance(answer, ApiError) and answer.err_code == _STORE_FAILED):
                break
            time.sleep(pause_s)
            answer = self._ask(f"STREAM.CREATE.{name}", config)
        if isinstance(answer, ApiError):
            # Somebody else may have created it between the two calls.
            info = self.stream_info(name) if answer.err_code == _STREAM_EXISTS else None
            if info is None:
                raise api_error(answer, f"stream {name}")
            return info
        return StreamInfo.parse(answer)

    def _get_message(self, stream: str, query: Mapping[str, Any]) -> StoredMessage | None:
        return self._message_of(self._ask(f"STREAM.MSG.GET.{check_stream_name(stream)}", query))

    def _message_of(self, answer: Mapping[str, Any] | ApiError) -> StoredMessage | None:
        if isinstance(answer, ApiError):
            if answer.err_code == _NO_MESSAGE:
                return None
            raise api_error(answer, self._connection.where)
        return _stored_message(answer.get("message"))

    def _call(self, endpoint: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        answer = self._ask(endpoint, body)
        if isinstance(answer, ApiError):
            raise api_error(answer, self._connection.where)
        return answer

    def _ask(self, endpoint: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any] | ApiError:
        payload = json.dumps(body).encode() if body else b""
        return self._answer(self._connection.request(f"{self._prefix}.{endpoint}", payload, timeout_s=self._timeout_s))

    def _answer(self, message: Msg) -> Mapping[str, Any] | ApiError:
        if _nobody_listens(message):
            remedy = "start nats-server with JetStream (-js -sd DIR), enable it for the account, check `domain`"
            raise DependencyError("JetStream is not enabled", remedy=remedy, where=self._connection.where)
        try:
            answer = json.loads(message.payload)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ProtocolError("JetStream sent an answer that is not a JSON object", where=self._connection.where)
        return parse_api_error(answer["error"]) if "error" in answer else answer


def _nobody_listens(message: Msg) -> bool:
    return message.headers.status == NO_RESPONDERS and not message.payload


def _stored_message(fields: Any) -> StoredMessage:
    try:
        headers = base64.b64decode(fields.get("hdrs") or "", validate=True)
        payload = base64.b64decode(fields.get("data") or "", validate=True)
        parsed = parse_headers(headers) if headers else Headers()
        return StoredMessage(fields["subject"], fields["seq"], payload, parsed, fields.get("time", ""))
    except (KeyError, AttributeError, TypeError, binascii.Error):
        raise ProtocolError("JetStream sent a malformed message") from None


def _number(fields: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int):
        raise ProtocolError(f"JetStream sent a malformed {name}")
    return value
