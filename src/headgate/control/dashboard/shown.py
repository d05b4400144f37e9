"""How the pages write things: numbers, sizes, ages, payloads, and the health behind a status."""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from headgate.model import Status

__all__ = ["MOST_PARSED", "Value", "age", "clock", "health", "number", "rate", "shown_value", "size"]

_MOST_TEXT = 4000
_MOST_HEX_BYTES = 512
_MOST_GIST = 300
MOST_PARSED = 64 << 10  # larger ones are shown as they are: reading them would take the time of others
_HEALTH = {Status.RUNNING: "good", Status.ERROR: "bad", Status.DEGRADED: "warn"}


def health(status: str) -> str:
    """The colour of a status: good, warn, bad, or idle."""
    return _HEALTH.get(Status(status), "idle")


def age(seconds: float | None) -> str:
    """A duration in its largest unit that still says something."""
    if seconds is None:
        return "-"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "< 1 s" if 0 < seconds < 1 else f"{max(seconds, 0):.0f} s"


def clock(at: float | None) -> str:
    """A moment, in UTC: whoever compares it with a log need not compute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") if at else "-"


def number(value: float | None) -> str:
    """A count with separators."""
    return "-" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A number per second: small ones with a decimal, large ones in thousands."""
    if value is None:
        return "-"
    for step, unit in ((1e6, "M"), (1e4, "k")):
        if value >= step:
            return f"{value / (1e6 if unit == 'M' else 1e3):,.1f}{unit}"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Bytes in decimal units, as disks are sold."""
    if value is None:
        return "-"
    for step, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= step:
            return f"{value / step:,.1f} {unit}"
    return f"{value:,.0f} B"


@dataclass(frozen=True, slots=True)
class Value:
    """Bytes as people can read them, and what they were taken for."""

    form: str
    text: str
    bytes: int
    is_cut: bool = False
    gist: str = ""  # a line of it


def shown_value(raw: bytes | None, size: int | None = None, form: str = "") -> Value:
    """JSON and MessagePack as indented JSON, other text as it is, and the rest in hex; or in the form that is wanted.

    `size`: of which `raw` may be the beginning.
    """
    if raw is None:
        return Value("nothing", "", 0)
    size = len(raw) if size is None else size
    form, text, gist = _in_form(raw, form) or _read(raw)
    most = _MOST_TEXT if form != "hex" else _MOST_HEX_BYTES * 3
    return Value(form, text[:most], size, len(text) > most or size > len(raw), gist[:_MOST_GIST])


def _in_form(raw: bytes, form: str) -> tuple[str, str, str] | None:
    if form == "hex":
        return _hex(raw)
    if form == "text":
        text = raw[: 4 * _MOST_TEXT].decode(errors="replace").replace("\0", "\ufffd")
        return "text", text, " ".join(text.split())
    return None


def _hex(raw: bytes) -> tuple[str, str, str]:
    in_hex = raw[: _MOST_HEX_BYTES + 1].hex(" ")
    return "hex", in_hex, in_hex


def _read(raw: bytes) -> tuple[str, str, str]:
    """What it was taken for, the text, and a line of it."""
    parsed = _parsed(raw) if len(raw) <= MOST_PARSED else None
    if parsed is not None:
        return parsed
    head = raw[: 4 * _MOST_TEXT]
    try:
        text = getincrementaldecoder("utf-8")().decode(head, final=head == raw)  # the head may end within a character
    except UnicodeDecodeError:
        text = "\0"
    if all(each.isprintable() or each in "\r\n\t" for each in text):
        return "text", text, " ".join(text.split())
    return _hex(raw)


def _parsed(raw: bytes) -> tuple[str, str, str] | None:
    head = raw[0] if raw else 0
    try:
        if head in b"{[":
            return ("JSON", *_as_json(json.loads(raw)))
        if 0x80 <= head <= 0x9F or 0xDC <= head <= 0xDF:  # a map or a list of MessagePack
            return ("MessagePack", *_as_json(msgspec.msgpack.decode(raw)))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        pass
    return None


def _as_json(value: Any) -> tuple[str, str]:
    """Indented, and in a line; of a change, the row alone, because the envelope around it fits no line."""
    is_change = isinstance(value, dict) and isinstance(value.get("data"), dict)
    short = json.dumps(value["data"] if is_change else value, ensure_ascii=False, default=_plain)
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain), short


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
