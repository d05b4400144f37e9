"""How far each topic is: the last message id of each origin, by which a replay is known.

The log itself is the truth. The file beside it only spares reading all of it: it says up to which record it counts, and
what lies behind that is read, so a crash between an append and this file loses nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from headgate.eventlog import LogReader
from headgate.eventlog.topics import ORDERED_EVENT, decode_event
from headgate.model.position import origin_of
from headgate.runtime.files import replace_file

__all__ = ["Reached"]

_log = logging.getLogger(__name__)

_READ_AT_MOST = 2000  # records, before the file is written again


class Reached:
    """The last id of every topic. Use it while holding the log's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path / "topics.json"
        self._seq, self._ids = self._saved()
        self._saved_seq = self._seq
        with LogReader(path) as reader:
            for records in reader.read(self._seq):
                for record in records:
                    if record.kind == ORDERED_EVENT:
                        event = decode_event(record.payload)
                        self._learn(event.topic, event.message_id)
                self._seq = records[-1].seq

    def last_id(self, origin: str, topic: str) -> str:
        """Every id up to this one is in the log; empty if none is."""
        return self._ids.get(origin, {}).get(topic, "")

    def add(self, ids: Iterable[tuple[str, str]], last_seq: int, oldest_seq: int) -> None:
        """Topics and ids that were appended, up to this record; `oldest_seq` is what the log begins with."""
        for topic, message_id in ids:
            self._learn(topic, message_id)
        self._seq = last_seq
        if self._seq - self._saved_seq >= _READ_AT_MOST or oldest_seq > self._saved_seq + 1:
            replace_file(self._path, json.dumps({"seq": self._seq, "ids": self._ids}).encode())
            self._saved_seq = self._seq

    def _learn(self, topic: str, message_id: str) -> None:
        known = self._ids.setdefault(origin_of(message_id), {})
        known[topic] = max(known.get(topic, ""), message_id)

    def _saved(self) -> tuple[int, dict[str, dict[str, str]]]:
        try:
            fields = json.loads(self._path.read_bytes())
            return fields["seq"], fields["ids"]
        except FileNotFoundError:
            return 0, {}
        except (ValueError, KeyError, TypeError):
            _log.warning("unreadable, and made anew from the log", extra={"path": str(self._path)})
            return 0, {}
