"""Comparison of schemas that may contain themselves: a pair that is being looked at is assumed to fit meanwhile.

A proof that used the assumption falls with it, so what was proved since a pair began is forgotten when the pair fails.
A failure needs no assumption, so it is kept. The number of steps is bounded: schemas come from strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from headgate.registry.schemas.problems import Problem

__all__ = ["MOST_STEPS", "Comparison", "TooComplexError"]

MOST_STEPS = 50_000


class TooComplexError(Exception):
    """The comparison takes more steps than anybody is given."""


@dataclass(slots=True)
class Comparison:
    """The memory of one comparison of two schemas."""

    steps_left: int = MOST_STEPS
    _failed: dict[Hashable, list[Problem]] = field(default_factory=dict)
    _proved: set[Hashable] = field(default_factory=set)  # with those that are assumed
    _order: list[Hashable] = field(default_factory=list)  # in which they came

    def step(self) -> None:
        """Count one step; raise TooComplexError when there were too many."""
        self.steps_left -= 1
        if self.steps_left < 0:
            raise TooComplexError

    def once(self, pair: Hashable, compare: Callable[[], list[Problem]]) -> list[Problem]:
        """Return what `compare` finds of this pair; it is asked once, and not while it is being asked."""
        self.step()
        if pair in self._failed:
            return self._failed[pair]
        if pair in self._proved:
            return []
        self._proved.add(pair)
        mark = len(self._order)
        self._order.append(pair)
        if problems := compare():
            while len(self._order) > mark:
                self._proved.discard(self._order.pop())
            self._failed[pair] = problems
        return problems
