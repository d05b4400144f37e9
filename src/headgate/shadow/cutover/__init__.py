"""Topics and their groups leave for the other cluster of a link, while their clients run.

plan       what would move, and what stands against it
run        fence, drain, verify, move groups, send clients over: each step can be repeated, and undone
rollback   the way back
target     the other cluster, through its administrator's requests
verify     whether the same messages are on both sides
"""

from __future__ import annotations

from headgate.shadow.cutover.plan import Plan, make_plan
from headgate.shadow.cutover.rollback import roll_back
from headgate.shadow.cutover.run import Patience, cut_over
from headgate.shadow.cutover.target import Target

__all__ = ["Patience", "Plan", "Target", "cut_over", "make_plan", "roll_back"]
