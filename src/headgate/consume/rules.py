"""Which transactions of the stream a snapshot contains already. Pure functions of numbers; see docs/snapshots.md.

A rule is needed only for a while: the stream is in commit order, so once it has come to a transaction that certainly
committed after the snapshot was taken, everything behind it did too, and the rule is over.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["ExportRule", "FilterRule", "Rule", "full_xid"]

_EPOCH = 1 << 32


def full_xid(xid: int, near: int) -> int:
    """A 32-bit transaction id with the epoch that brings it nearest to a 64-bit one."""
    epoch = near >> 32
    candidates = (xid + other * _EPOCH for other in (epoch - 1, epoch, epoch + 1) if other >= 0)
    return min(candidates, key=lambda candidate: abs(candidate - near))


class ExportRule(msgspec.Struct, frozen=True, tag="export", tag_field="method"):
    """A snapshot that a replication slot exported at its consistent point."""

    lsn: int

    def contains(self, commit_lsn: int, xid: int | None) -> bool:
        return commit_lsn < self.lsn

    def is_over(self, commit_lsn: int, xid: int | None) -> bool:
        return commit_lsn >= self.lsn


class FilterRule(msgspec.Struct, frozen=True, tag="filter", tag_field="method"):
    """An ordinary snapshot, known by what it saw: all below `xmin`, and all below `xmax` that is not in `xip`.

    `lsn` is a place in the WAL behind every commit that it saw.
    """

    xmin: int
    xmax: int
    xip: list[int]
    lsn: int

    def contains(self, commit_lsn: int, xid: int | None) -> bool:
        if xid is None:
            return False
        full = full_xid(xid, self.xmax)
        return full < self.xmin or (full < self.xmax and full not in self.xip)

    def is_over(self, commit_lsn: int, xid: int | None) -> bool:
        """A transaction from `xmax` on is no sign of it: its commit may have hung while later ones became visible."""
        return commit_lsn >= self.lsn


Rule: TypeAlias = ExportRule | FilterRule
