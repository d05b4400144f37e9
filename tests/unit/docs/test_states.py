"""The tables of states in the documents are what the code does."""

from __future__ import annotations

from pathlib import Path

from headgate.pipeline.routing.breaker import Breaker, BreakerState
from headgate.relay.store.rows import AccountRow

DOCS = Path(__file__).parents[3] / "docs"


def rows(page: str, header: str) -> list[list[str]]:
    """The rows of the table with this header, without marks of code."""
    lines = (DOCS / page).read_text(encoding="utf-8").partition(f"{header}\n")[2].splitlines()[1:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]


def breaker_in(state: str) -> tuple[Breaker, list[float]]:
    now = [0.0]
    breaker = Breaker(threshold=2, cool_down_s=30, clock=lambda: now[0])
    if state != BreakerState.CLOSED:
        breaker.failed()
        breaker.failed()
    if state == BreakerState.HALF_OPEN:
        now[0] = 30.0
    assert breaker.state == state
    return breaker, now


def test_the_table_of_the_breaker() -> None:
    table = rows("routing.md", "| breaker | what happens | then it is |")
    assert {row[0] for row in table} == {row[2] for row in table} == set(BreakerState)
    for before, event, after in table:
        breaker, now = breaker_in(before)
        match event:
            case "fewer failures than the threshold" | "a batch fails":
                breaker.failed()
            case "as many failures in a row as the threshold":
                breaker.failed()
                breaker.failed()
            case "the cool-down is over":
                now[0] += 30.0
            case "a batch succeeds":
                breaker.succeeded()
            case _:
                raise AssertionError(event)
        assert breaker.state == after, (before, event)


def test_the_table_of_an_account() -> None:
    table = rows("relay.md", "| at its host | set here | told |")
    assert len(table) == 4
    for at_host, here, told in table:
        is_active = at_host == "active"
        row = AccountRow(
            "did:plc:x", "host", active=is_active, status=None if is_active else at_host,
            local_status=None if here == "nothing" else here,
        )  # fmt: skip
        assert row.combined == (told == "active", None if told == "active" else told)
