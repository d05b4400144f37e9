"""Why a request, or a part of it, is not done: what a handler raises and a response says."""

from __future__ import annotations

from headgate.wire.kafka.error_codes import ErrorCode

__all__ = ["Refused"]


class Refused(Exception):  # noqa: N818  an answer, not a fault
    """An answer to a client, with the protocol's code and a sentence for people.

    `records` are those of a batch that are to blame, counted from 0; a producer may send the others again.
    """

    def __init__(self, code: ErrorCode, message: str = "", *, records: tuple[int, ...] = ()) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or None
        self.records = records
