"""Reading acknowledgements at the speed of C.

A busy server answers with thousands of messages that differ in two numbers only:

    MSG _INBOX.abc.0041 1 31\\r\\n{"stream":"ORDERS","seq":10041}\\r\\n
    MSG _INBOX.abc.0042 1 31\\r\\n{"stream":"ORDERS","seq":10042}\\r\\n

`scan` matches the first one exactly, lays the bytes out as rows of the same length, and compares all of them with the
first in a few NumPy operations. Rows that differ in more than those digits end the run; what no run explains is left to
the strict parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["AckScanner", "Run"]

# After a run that ended early, the next one is looked for among twice as many rows as were found: an alternation of two
# kinds of answers must not make every step look at all the rest.
_SHORT_LOOK = 64
# No ordinary acknowledgement is longer, so a longer incomplete one is not ordinary.
_MAX_PARTIAL = 1_024
_ZERO = np.uint8(ord("0"))


@dataclass(frozen=True, slots=True)
class Run:
    """Acknowledgements of one stream, in the order of arrival."""

    stream: str
    duplicate: bool
    slots: npt.NDArray[np.int64]
    last_sequence: int


class AckScanner:
    """Finds runs of ordinary acknowledgements on one inbox."""

    def __init__(self, inbox: str, sid: int, width: int) -> None:
        self._ordinary = re.compile(
            rb"MSG %s\.(?P<slot>[0-9]{%d}) %d (?P<size>[0-9]{1,4})\r\n"
            rb'(?P<body>\{"stream":"(?P<stream>[!#-\[\]-~]+)"(?:,"domain":"[!#-\[\]-~]*")?,"seq":(?P<seq>[0-9]{1,20})'
            rb'(?P<duplicate>,"duplicate": ?true)?\})\r\n' % (re.escape(inbox.encode()), width, sid)
        )
        self._weights = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)

    def scan(self, data: bytes) -> tuple[list[Run], bytes, bytes]:
        """Runs, then bytes that only the strict parser understands, then the beginning of an ordinary answer."""
        runs = []
        position, look = 0, len(data)
        while (match := self._ordinary.match(data, position)) and int(match["size"]) == len(match["body"]):
            run = self._run(data, match, look)
            runs.append(run)
            position += len(run.slots) * (match.end() - match.start())
            look = _SHORT_LOOK + 2 * len(run.slots)
        rest = data[position:]
        return (runs, b"", rest) if _is_partial(rest) else (runs, rest, b"")

    def _run(self, data: bytes, match: re.Match[bytes], look: int) -> Run:
        start, length = match.start(), match.end() - match.start()
        count = min(look, (len(data) - start) // length)
        rows = np.frombuffer(data, np.uint8, count * length, start).reshape(count, length)
        slot, seq = (slice(match.start(name) - start, match.end(name) - start) for name in ("slot", "seq"))
        # A byte below "0" wraps, so that one comparison finds both kinds of wrong.
        slot_digits, seq_digits = rows[:, slot] - _ZERO, rows[:, seq] - _ZERO
        likeness = rows.copy()
        likeness[:, slot], likeness[:, seq] = rows[0, slot], rows[0, seq]
        if max(slot_digits.max(), seq_digits.max()) > 9 or likeness.tobytes() != match[0] * count:
            digits = np.hstack((slot_digits, seq_digits))
            count = int(np.argmin((likeness == rows[0]).all(axis=1) & (digits <= 9).all(axis=1)))
        slots = slot_digits[:count] @ self._weights
        last_sequence = int(rows[count - 1, seq].tobytes())
        return Run(match["stream"].decode(), match["duplicate"] is not None, slots, last_sequence)


def _is_partial(rest: bytes) -> bool:
    """Whether the bytes can be the beginning of a message that is still arriving."""
    return len(rest) < _MAX_PARTIAL and rest[:4] == b"MSG "[: len(rest)] and rest.count(b"\r\n") < 2
