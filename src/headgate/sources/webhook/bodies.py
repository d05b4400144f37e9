"""What a request's body holds: one event, or several, each a row.

JSON is checked here, at the door: the sender hears of a mistake, and no row can surprise the pipeline later.
"""

from __future__ import annotations

import msgspec

__all__ = ["BadBodyError", "split_body"]

_LINES = frozenset(
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"]
)  # nobody registered a name, so there are several
_value = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])


class BadBodyError(ValueError):
    """A body that is not what its content type says; the text is for the sender."""


def split_body(content_type: str, body: bytes, *, text: bool, max_events: int) -> list[bytes]:
    """The events: elements of a JSON array, lines of NDJSON, or the body as it is."""
    if text:
        _require_utf8(body)
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _LINES:
        events = [line.strip() for line in body.split(b"\n") if line.strip()]
        _require_few(len(events), max_events)
        for line in events:
            _check(line)
        return events
    if media_type == "application/json" or media_type.endswith("+json"):
        _require_utf8(body)  # JSON is UTF-8, RFC 8259 section 8.1
        return _split_json(body, max_events)
    return [body]


def _split_json(body: bytes, max_events: int) -> list[bytes]:
    if not body.lstrip(b" \t\r\n").startswith(b"["):
        _check(body)
        return [body]
    try:
        elements = _array.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadBodyError(f"not JSON: {error}") from None
    _require_few(len(elements), max_events)
    return [bytes(element) for element in elements]


def _check(value: bytes) -> None:
    try:
        _value.decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadBodyError(f"not JSON: {error}") from None


def _require_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadBodyError(f"not UTF-8 (byte {error.start})") from None


def _require_few(count: int, most: int) -> None:
    if count > most:
        raise BadBodyError(f"{count} events in one request; {most} are allowed")
