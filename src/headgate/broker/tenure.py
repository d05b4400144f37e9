"""One unbroken hold of a group, and what was read in it.

Whatever a reader knows of its group, the epoch, the cursor and the events in hand, it knows from one hold. When the
group is lost, moved by `seek`, or found on a server with another past, that hold is over, and nothing that was asked or
read in it may count in the next one: answers are compared with the tenure that they were asked in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

__all__ = ["Checkpoint", "Tenure"]


@dataclass(eq=False)
class Checkpoint:
    """A read whose batches are being handled."""

    cursor: int
    open: int


@dataclass(eq=False)
class Tenure:
    """The time between two changes of a group's epoch, as one reader sees it."""

    epoch: int | None = None  # unknown before the first answer
    cursor: int | None = None  # where to read on; None: where the group is
    checkpoints: deque[Checkpoint] = field(default_factory=deque)
    over: bool = False

    def finished(self) -> list[Checkpoint]:
        """Reads that are done, and so are all before them."""
        return list(takewhile(lambda checkpoint: checkpoint.open == 0, self.checkpoints))

    def acknowledged(self, finished: list[Checkpoint]) -> None:
        """The group's cursor stands behind these now."""
        while self.checkpoints and self.checkpoints[0] in finished:
            self.checkpoints.popleft()
        if not self.checkpoints:
            self.cursor = None  # it is where the group is

    def end(self) -> None:
        """What is in hand will be handled by another reader, or again."""
        self.over = True
        self.checkpoints.clear()
