"""Folded changes come to the same rows as changes applied one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.consume import Change, Column, Schema
from headgate.replica.fold import Fold, Move, Plan

COLUMNS = ("id", "a", "b")
ACTIONS = ("insert", "update", "toast", "move", "moved_toast", "full", "delete", "truncate")
KEYED = Schema("public", "t", "v", [Column(name, "integer") for name in COLUMNS], key=["id"], primary_key=["id"])
BAG = Schema("public", "t", "v", [Column(name, "integer") for name in COLUMNS], replica_identity="full")


def change(operation: str, data: dict[str, Any], old: dict[str, Any] | None = None) -> Change:
    return Change(schema="public", table="t", operation=operation, commit_lsn="0/1", msg_id="", data=data, old=old)


def apply(plan: Plan, rows: dict[int, dict[str, Any]]) -> None:
    """What a target does."""
    for item in plan.items:
        if isinstance(item, Move):
            row = rows.pop(item.old_key[0])
            rows[item.values["id"]] = row | item.values
            continue
        assert isinstance(item, Fold)
        if item.is_truncated:
            rows.clear()
        for (key,) in item.deletes:
            rows.pop(key, None)
        for columns, patches in item.patches.items():
            for *values, key in patches:
                rows[key] |= dict(zip(columns, values, strict=True))
        for put in item.puts:
            rows[put[0]] = dict(zip(COLUMNS, put, strict=True))


@given(st.data())
def test_keyed_rows(data: st.DataObject) -> None:
    before = {key: {"id": key, "a": 0, "b": key} for key in data.draw(st.sets(st.integers(0, 5)))}
    truth = {key: dict(row) for key, row in before.items()}
    plan = Plan()
    for _ in range(data.draw(st.integers(0, 25))):
        action = data.draw(
            st.sampled_from(["insert", "update", "toast", "move", "moved_toast", "full", "delete", "truncate"])
        )
        value = data.draw(st.integers(0, 99))
        free = [key for key in range(8) if key not in truth]
        if action == "truncate" and value > 80:
            truth.clear()
            plan.add(KEYED, change("TRUNCATE", {"cascade": False, "restart_identity": False}))
        elif action == "insert" and free:
            row = {"id": data.draw(st.sampled_from(free)), "a": value, "b": value}
            truth[row["id"]] = row
            plan.add(KEYED, change("INSERT", dict(row)))
        elif truth and action in ("update", "toast", "delete", "full"):
            key = data.draw(st.sampled_from(sorted(truth)))
            old = truth.pop(key)
            if action == "delete":
                plan.add(KEYED, change("DELETE", {"id": key}))
                continue
            sent = {"id": key, "a": value} | ({} if action != "update" else {"b": value})
            truth[key] = old | sent
            plan.add(KEYED, change("UPDATE", sent, old if action == "full" else None))
        elif truth and free and action in ("move", "moved_toast"):
            key, new = data.draw(st.sampled_from(sorted(truth))), data.draw(st.sampled_from(free))
            old = truth.pop(key)
            sent = {"id": new, "a": value} | ({"b": old["b"]} if action == "move" else {})
            truth[new] = old | sent
            plan.add(KEYED, change("UPDATE", sent, {"id": key}))
    apply(plan, before)
    assert before == truth


@given(st.lists(st.tuples(st.sampled_from("+-~"), st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_rows_without_a_key(actions: list[tuple[str, int, int]]) -> None:
    truth: list[int] = [0, 0, 1]
    fold = Fold(BAG)
    for action, one, two in actions:
        row, other = ({"id": n, "a": None, "b": n} for n in (one, two))
        if action == "+":
            truth.append(one)
            fold.feed(change("INSERT", row))
        elif one in truth:
            truth.remove(one)
            if action == "~":
                truth.append(two)
            fold.feed(change("UPDATE", other, row) if action == "~" else change("DELETE", row))
    rows = [0, 0, 1]
    for (one, _, _), count in fold.removed:
        for _ in range(count):
            rows.remove(one)
    rows += [row[0] for row in fold.added]
    assert sorted(rows) == sorted(truth)
