"""The dictionary by which Jetstream's messages are compressed: a file in the data directory of the relay.

A message of a few hundred bytes has little to repeat. With a dictionary of what messages have in common it becomes half
as long; but only who has the same dictionary can read it. So it is served to everybody, and there is none unless an
operator trains one from the log, or puts one there: consumers that are built for Jetstream carry that of Jetstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headgate.eventlog import LogReader
from headgate.model import ConfigError, StateError
from headgate.relay.doors import JETSTREAM, LEVEL, JetstreamDoor
from headgate.runtime.files import replace_file

__all__ = ["DICTIONARY", "dictionary_route", "load_dictionary", "train_dictionary"]

DICTIONARY = "zstd_dictionary"  # in the data directory
_BYTES = 112 << 10  # as zstd's own tool makes them
_SAMPLES = 20_000
_FEWEST_SAMPLES = 100
_MOST_BYTES = 4 << 20
_LATER = "let the relay run for a while first"
_TRAIN = "train one: headgate relay dictionary"


def load_dictionary(data_dir: Path) -> zstandard.ZstdCompressionDict | None:
    """That of a relay, or None if it has none."""
    path = data_dir / DICTIONARY
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"the dictionary cannot be read: {error.strerror}", where=str(path)) from None
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError("too large")
        found = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
        found.precompute_compress(level=LEVEL)
    except (zstandard.ZstdError, ValueError) as error:
        remedy = f"remove it, or {_TRAIN}"
        raise ConfigError(f"this is no dictionary of zstd: {error}", where=str(path), remedy=remedy) from None
    return found


def train_dictionary(data_dir: Path) -> zstandard.ZstdCompressionDict:
    """Make one from the newest events of the log. A relay uses it from its next start on."""
    with LogReader(data_dir / "log") as reader:
        samples: list[Any] = list(islice(_texts(reader), _SAMPLES))
    if len(samples) < _FEWEST_SAMPLES:
        text = f"the log has {len(samples)} messages of Jetstream, and a dictionary needs {_FEWEST_SAMPLES} or more"
        raise StateError(text, where=str(data_dir), remedy=_LATER)
    size = min(_BYTES, max(1024, sum(map(len, samples)) // 10))
    try:
        trained = zstandard.train_dictionary(size, samples)
    except zstandard.ZstdError as error:
        remedy = "let the relay run for a while first"
        raise StateError(
            f"no dictionary can be made of this log: {error}", where=str(data_dir), remedy=remedy
        ) from None
    replace_file(data_dir / DICTIONARY, trained.as_bytes())
    return trained


def dictionary_route(dictionary: zstandard.ZstdCompressionDict | None) -> Route:
    """Where consumers fetch it."""

    async def answer(request: Request) -> Response:
        if dictionary is None:
            told = {"error": "NotFound", "message": "messages are compressed without a dictionary"}
            return JSONResponse(told, 404)
        return Response(dictionary.as_bytes(), media_type="application/octet-stream")

    return Route(f"{JETSTREAM}/dictionary", answer)


def _texts(reader: LogReader) -> Iterator[bytes]:
    door = JetstreamDoor(reader)
    for records in reader.read(max(reader.oldest_seq, reader.head_seq - _SAMPLES) - 1):
        for record in records:
            for message in door.messages(record):
                yield message.data
