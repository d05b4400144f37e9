"""What became of the rows between two flushes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.model import HeadgateError

__all__ = ["Failure", "Ledger", "Receipt"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows that share a reason. `code` is JetStream's err_code, a status such as 503, or 0 if the server was silent."""

    error: HeadgateError
    code: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Rows are numbered from 0 since the last flush, in the order in which they were published.

    `acked` rows are stored, `duplicates` of them were so before. Every other row is
    named by exactly one failure; failures are in the order of their first rows.
    """

    sent: int
    acked: int
    duplicates: int
    last_sequence: dict[str, int]
    failures: tuple[Failure, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every row is stored."""
        return not self.failures

    @property
    def failed_rows(self) -> tuple[int, ...]:
        """The rows that are not stored, in order."""
        return tuple(sorted(row for failure in self.failures for row in failure.rows))

    def raise_for_failures(self) -> Receipt:
        """Return the receipt if it is complete; raise the error of its first failed row otherwise."""
        if self.failures:
            raise self.failures[0].error
        return self


@dataclass(slots=True)
class Ledger:
    """A receipt in the making."""

    rows: int = 0  # handed over by the caller
    sent: int = 0
    acked: int = 0
    duplicates: int = 0
    last_sequence: dict[str, int] = field(default_factory=dict)
    _failed: dict[tuple[int, str], tuple[HeadgateError, list[int]]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether any row failed so far."""
        return bool(self._failed)

    def ack(self, stream: str, count: int, last_sequence: int, *, duplicate: bool) -> None:
        """Note stored rows."""
        self.acked += count
        if duplicate:
            self.duplicates += count
        if last_sequence:
            self.last_sequence[stream] = max(last_sequence, self.last_sequence.get(stream, 0))

    def fail(self, error: HeadgateError, code: int, rows: Iterable[int]) -> None:
        """Note rows that are not stored; rows with the same message become one failure."""
        listed = [int(row) for row in rows]
        if listed:
            self._failed.setdefault((code, error.message), (error, []))[1].extend(listed)

    def receipt(self) -> Receipt:
        """The finished receipt."""
        failures = [Failure(error, code, tuple(sorted(rows))) for (code, _), (error, rows) in self._failed.items()]
        failures.sort(key=lambda failure: failure.rows[0])
        return Receipt(self.sent, self.acked, self.duplicates, self.last_sequence, tuple(failures))
