"""How many bytes of requests and answers a gateway keeps in memory, over all of its connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """Bytes that are taken and given back; who finds too little left waits in line.

    A frame asks for its whole size before its bytes are read. So a frame that has begun can always be finished, and
    many half-read frames cannot wait for one another.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._line: deque[tuple[int, Callable[[], bool]]] = deque()

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)

    def take(self, size: int) -> None:
        """Count bytes that are in memory already."""
        self.used += size

    def ask(self, size: int, granted: Callable[[], bool]) -> bool:
        """Whether the bytes may come now. If not, `granted` is called later, and says whether they are still wanted."""
        if not self._line and self._fits(size):
            self.used += size
            return True
        self._line.append((size, granted))
        return False

    def give_back(self, size: int) -> None:
        self.used -= size
        while self._line and self._fits(self._line[0][0]):
            wanted, granted = self._line.popleft()
            self.used += wanted
            if not granted():
                self.used -= wanted

    def _fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.limit
