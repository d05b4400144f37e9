"""The tree against another implementation, and inversion against trees of every shape."""

from __future__ import annotations

from typing import Any

import pytest
from atmst.blockstore import MemoryBlockStore
from atmst.mst.node_store import NodeStore
from atmst.mst.node_wrangler import NodeWrangler
from cbrrr import CID
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.wire.atproto import Action, AtprotoError, Op, Reason, cid_of, invert
from headgate.wire.atproto.mst import Tree, build_tree
from headgate.wire.atproto.mst_node import EMPTY_ROOT, common_prefix, key_height


def _tall_keys() -> list[str]:
    """Keys of which many are high in the tree: with keys by chance only one in 256 would be of height 4."""
    found: list[str] = []
    for height, count in ((0, 25), (1, 20), (2, 15), (3, 8), (4, 4), (5, 2)):
        named = (f"app.test.{name}/{number}" for number in range(20_000) for name in ("note", "post"))
        matching = (key for key in named if key_height(key.encode()) == height)
        found += [key for _, key in zip(range(count), matching, strict=False)]
    return found


KEYS = _tall_keys()
VALUES = [cid_of(b"%d" % number) for number in range(6)]
trees = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=40)


@st.composite
def changes(draw: st.DrawFn) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The records before and after a commit."""
    before = draw(trees)
    after = dict(before)
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=8, unique=True)):
        value = draw(st.sampled_from(VALUES) if key not in before else st.none() | st.sampled_from(VALUES))
        if value is None:
            del after[key]
        else:
            after[key] = value
    return before, after


def ops_between(before: dict[str, bytes], after: dict[str, bytes]) -> list[Op]:
    created = [Op(Action.CREATE, key, cid, None) for key, cid in after.items() if key not in before]
    deleted = [Op(Action.DELETE, key, None, cid) for key, cid in before.items() if key not in after]
    both = [key for key in before if key in after and before[key] != after[key]]
    return created + deleted + [Op(Action.UPDATE, key, after[key], before[key]) for key in both]


def built(records: dict[str, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    return build_tree({key.encode(): value for key, value in records.items()})


def committed(before: dict[str, bytes], after: dict[str, bytes]) -> tuple[Tree, list[Op]]:
    """The tree after a commit, made by its ops."""
    tree, ops = Tree(*built(before)), ops_between(before, after)
    for op in ops:
        key = op.path.encode()
        if op.prev is None:
            assert op.cid is not None
            tree.insert(key, op.cid)
        elif op.cid is None:
            tree.remove(key, op.prev)
        else:
            tree.replace(key, op.prev, op.cid)
    return tree, ops


@given(records=trees)
def test_roots_are_those_of_another_implementation(records: dict[str, bytes]) -> None:
    store = NodeStore(MemoryBlockStore())
    wrangler = NodeWrangler(store)
    root: Any = store.get_node(None).cid
    for key, value in records.items():
        root = wrangler.put_record(root, key, CID(value))
    assert built(records)[0] == bytes(root)
    for key in list(records)[::2]:
        root = wrangler.del_record(root, key)
    rest = {key: value for index, (key, value) in enumerate(records.items()) if index % 2}
    assert built(rest)[0] == bytes(root)


@given(change=changes())
def test_a_changed_tree_is_the_tree_of_its_records(change: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    before, after = change
    tree, _ = committed(before, after)
    root, blocks = built(after)
    assert tree.root() == root
    assert tree.nodes() == blocks
    assert {key: tree.get(key.encode()) for key in KEYS} == {key: after.get(key) for key in KEYS}


@settings(max_examples=200)
@given(change=changes())
def test_a_commit_can_be_turned_back_with_its_proof_alone(change: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    before, after = change
    tree, ops = committed(before, after)
    root = tree.root()
    nodes = tree.proof(op.path.encode() for op in ops)
    assert invert(root, nodes, ops) == built(before)[0]


def inverted(root: bytes, nodes: dict[bytes, bytes], ops: list[Op]) -> bytes | Reason:
    try:
        return invert(root, nodes, ops)
    except AtprotoError as error:
        return error.reason


def _lies(ops: list[Op], index: int) -> dict[str, list[Op]]:
    """What a host might say instead of the op at an index."""
    op, rest = ops[index], [*ops[:index], *ops[index + 1 :]]
    other = cid_of(b"another record")
    cid, prev = (other if op.cid else None), (other if op.prev else None)
    return {
        "omitted": rest,
        "another cid": [*rest, Op(op.action, op.path, cid, op.prev)] if cid else rest,
        "another prev": [*rest, Op(op.action, op.path, op.cid, prev)] if prev else rest,
        "another path": [*rest, Op(op.action, op.path + "x", op.cid, op.prev)],
        "one more": [*ops, Op(Action.CREATE, "app.test.none/1", other, None)],
    }


@pytest.mark.parametrize("name", ["omitted", "another cid", "another prev", "another path", "one more"])
@given(change=changes(), data=st.data())
def test_no_lie_about_ops_leads_to_the_tree_before(
    name: str, change: tuple[dict[str, bytes], dict[str, bytes]], data: st.DataObject
) -> None:
    before, after = change
    tree, ops = committed(before, after)
    assume(ops)
    root, nodes = tree.root(), tree.nodes()
    lie = _lies(ops, data.draw(st.integers(0, len(ops) - 1)))[name]
    found = inverted(root, nodes, lie)
    assert found is Reason.OP_MISMATCH or (isinstance(found, bytes) and found != built(before)[0])


@given(change=changes(), data=st.data())
def test_a_missing_node_is_noticed_or_not_needed(
    change: tuple[dict[str, bytes], dict[str, bytes]], data: st.DataObject
) -> None:
    before, after = change
    tree, ops = committed(before, after)
    root = tree.root()
    nodes = tree.proof(op.path.encode() for op in ops)
    del nodes[data.draw(st.sampled_from(sorted(nodes)))]
    assert inverted(root, nodes, ops) in (built(before)[0], Reason.MISSING_BLOCK)


@given(left=st.binary(max_size=40), right=st.binary(max_size=40))
def test_the_common_prefix_is_the_longest(left: bytes, right: bytes) -> None:
    size = common_prefix(left, right)
    assert left[:size] == right[:size]
    assert min(len(left), len(right)) == size or left[size] != right[size]


def test_the_keys_reach_all_heights() -> None:
    assert {key_height(key.encode()) for key in KEYS} == set(range(6))
    assert built({})[0] == EMPTY_ROOT
