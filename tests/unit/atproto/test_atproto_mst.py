"""The tree: known heights, roots and proofs, and nodes that are none."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from headgate.wire.atproto import Action, AtprotoError, Op, Reason, cbor, check_ops, cid_of, cid_text, invert, parse_cid
from headgate.wire.atproto.mst import Tree, build_tree
from headgate.wire.atproto.mst_node import EMPTY_BLOCK, EMPTY_ROOT, common_prefix, key_height, read_node

LEAF = parse_cid("bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454")
OTHER = cid_of(b"other")


@pytest.mark.parametrize(
    ("key", "height"),
    [
        ("", 0),
        ("asdf", 0),
        ("blue", 1),
        ("2653ae71", 0),
        ("88bfafc7", 2),
        ("2a92d355", 4),
        ("884976f5", 6),
        ("app.bsky.feed.post/454397e440ec", 4),
        ("app.bsky.feed.post/9adeb165882c", 8),
    ],
)
def test_the_height_of_a_key_is_in_its_hash(key: str, height: int) -> None:
    assert key_height(key.encode()) == height


@pytest.mark.parametrize(
    ("left", "right", "size"),
    [
        ("", "", 0),
        ("abc", "abc", 3),
        ("", "abc", 0),
        ("abc", "", 0),
        ("ab", "abc", 2),
        ("abc", "ab", 2),
        ("abcde", "abc", 3),
        ("abc", "abcde", 3),
        ("abcde", "abc1", 3),
        ("abcde", "abb", 2),
        ("abcde", "qbb", 0),
        ("abc", "abc\0", 3),
        ("abc\0", "abc", 3),
    ],
)
def test_the_common_prefix_is_counted_in_bytes(left: str, right: str, size: int) -> None:
    assert common_prefix(left.encode(), right.encode()) == size


class Proof(NamedTuple):
    """A commit of which the roots, and the nodes that prove it, are known (by the first letters of their CIDs)."""

    name: str
    keys: str
    adds: str
    dels: str
    before: str
    after: str
    nodes: int


POST = "app.bsky.feed.post"
PROOFS = [
    Proof(
        "two deep split",
        "A0/374913 B1/986427 C0/451630 E0/670489 F1/085263 G0/765327",
        "D2/269196",
        "",
        "bafyreicraprx2xwnico4tuqir3ozsxpz46qkcpox3obf5bagicqwurghpy",
        "bafyreihvay6pazw3dfa47u5d2tn3rd6pa57sr37bo5bqyvjuqc73ib65my",
        5,
    ),
    Proof(
        "two deep leafless split",
        "A0/374913 B0/601692 D0/952776 E0/670489",
        "C2/014073",
        "",
        "bafyreialm5sgf7pijawbschsjpdevid5rss5ip3d4n4w6cc4mhu53sfl4i",
        "bafyreibxh4iztp5l2yshz3ectg2qjpeyprpw2gogao3pvceowpq3k3thya",
        5,
    ),
    Proof(
        "add on edge with neighbor two layers down",
        "A0/374913 B2/827649 C0/451630",
        "D2/269196",
        "",
        "bafyreigc6ay2qwfk7kuevvrczummpd64nknfo4yxpaooknfymzyb7u3ntq",
        "bafyreign6kxoll35r5f2ske6hjx7vg56aw3jn6r5hcopgrepzafpvohr2a",
        3,
    ),
    Proof(
        "merge and split in multi-op commit",
        "A0/374913 B2/827649 D2/269196 E0/670489",
        "C2/014073",
        "B2/827649 D2/269196",
        "bafyreiceld4icym4qjmdcn3dfgtxt7t66hdgyhvigessgmkvb56dx6amgi",
        "bafyreigkalika3taqauapfha556lo36zzcjoiifny5xeru6yis3nxw5ruq",
        5,
    ),
    Proof(
        "complex multi-op commit",
        "B0/601692 C2/014073 D0/952776 E2/819540 F0/697858 H0/131238",
        "A2/827942 G2/611528",
        "C2/014073",
        "bafyreigr3plnts7dax6yokvinbhcqpyicdfgg6npvvyx6okc5jo55slfqi",
        "bafyreiftrcrbhrwmi37u4egedlg56gk3jeh3tvmqvwgowoifuklfysyx54",
        7,
    ),
    Proof(
        "split with earlier leaves on same layer",
        f"{POST}/3lo3kqqljmfe2 {POST}/3log4547dm6h2 {POST}/3log45inogon2 {POST}/3logaodrh74d2 {POST}/3logteazog2n2 "
        f"{POST}/3lon5cqsbwrj2 app.bsky.feed.repost/3l6sjhvqonco2",
        f"{POST}/3lon5dzeaihj2",
        "",
        "bafyreigfcsro2up7qi7l3rxdpg7n6gjtteotkmgrrqztl5oy2tf4ncl4ji",
        "bafyreig33hsjiplaixvmccy65n7rn3in5nsbtcittzx6k3w5wjfhk2sg3a",
        3,
    ),
]


@pytest.mark.parametrize("proof", PROOFS, ids=[proof.name for proof in PROOFS])
def test_commits_of_which_the_proof_is_known(proof: Proof) -> None:
    before, blocks = build_tree({key.encode(): LEAF for key in proof.keys.split()})
    assert cid_text(before) == proof.before
    tree = Tree(before, blocks)
    for key in proof.adds.split():
        tree.insert(key.encode(), LEAF)
    for key in proof.dels.split():
        tree.remove(key.encode(), LEAF)
    after = tree.root()
    assert cid_text(after) == proof.after
    nodes = tree.proof(key.encode() for key in (proof.adds + " " + proof.dels).split())
    assert len(nodes) == proof.nodes
    ops = [Op(Action.CREATE, key, LEAF, None) for key in proof.adds.split()]
    ops += [Op(Action.DELETE, key, None, LEAF) for key in proof.dels.split()]
    assert invert(after, nodes, ops) == before


def test_the_empty_tree_is_known() -> None:
    assert build_tree({}) == (EMPTY_ROOT, {EMPTY_ROOT: EMPTY_BLOCK})
    assert cid_text(EMPTY_ROOT) == "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm"
    tree = Tree(EMPTY_ROOT, {})
    tree.insert(b"a", LEAF)
    assert tree.root() == build_tree({b"a": LEAF})[0]
    tree.remove(b"a", LEAF)
    assert tree.root() == EMPTY_ROOT


def test_a_tree_of_one_key_has_the_root_that_other_implementations_give_it() -> None:
    key = b"com.example.record/3jqfcqzm3fo2j"
    value = parse_cid("bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454")
    assert cid_text(build_tree({key: value})[0]) == "bafyreibj4lsc3aqnrvphp5xmrnfoorvru4wynt6lwidqbm2623a6tatzdu"


def test_values_can_be_looked_up() -> None:
    items = {f"{n}".encode(): cid_of(b"%d" % n) for n in range(50)}
    tree = Tree(*build_tree(items))
    assert {key: tree.get(key) for key in items} == items
    assert tree.get(b"none") is None


def op(action: Action, path: str = "a.b.c/x", cid: bytes | None = None, prev: bytes | None = None) -> Op:
    return Op(action, path, cid, prev)


@pytest.mark.parametrize(
    "ops",
    [
        [op(Action.CREATE, cid=LEAF), op(Action.CREATE, cid=LEAF)],
        [op(Action.CREATE)],
        [op(Action.CREATE, cid=LEAF, prev=OTHER)],
        [op(Action.UPDATE, cid=LEAF)],
        [op(Action.UPDATE, prev=LEAF)],
        [op(Action.DELETE)],
        [op(Action.DELETE, cid=LEAF, prev=OTHER)],
    ],
    ids=["twice", "no cid", "prev", "update no prev", "update no cid", "delete no prev", "delete cid"],
)
def test_ops_have_the_cids_they_need(ops: list[Op]) -> None:
    with pytest.raises(AtprotoError) as caught:
        check_ops(ops)
    assert caught.value.reason is Reason.BAD_OPS


@pytest.mark.parametrize(
    "wrong",
    [
        op(Action.CREATE, "1", cid=OTHER),
        op(Action.CREATE, "none", cid=LEAF),
        op(Action.UPDATE, "1", cid=OTHER, prev=LEAF),
        op(Action.DELETE, "1", prev=LEAF),
    ],
    ids=["other value", "not there", "other value updated", "still there"],
)
def test_the_tree_holds_what_the_ops_say(wrong: Op) -> None:
    root, blocks = build_tree({f"{n}".encode(): LEAF for n in range(50)})
    with pytest.raises(AtprotoError) as caught:
        invert(root, blocks, [wrong])
    assert caught.value.reason is Reason.OP_MISMATCH


def test_a_node_that_is_not_there_is_said_so() -> None:
    root, blocks = build_tree({f"{n}".encode(): LEAF for n in range(50)})
    with pytest.raises(AtprotoError) as caught:
        invert(root, {root: blocks[root]}, [op(Action.CREATE, "1", cid=LEAF)])
    assert caught.value.reason is Reason.MISSING_BLOCK


def entry(**fields: Any) -> dict[str, Any]:
    return {"k": b"asdf", "p": 0, "t": None, "v": LEAF} | fields


GOOD = {"e": [entry()], "l": None}


@pytest.mark.parametrize(
    "node",
    [
        [],
        {},
        {"e": [entry()]},
        {"e": {}, "l": None},
        {"e": None, "l": None},
        GOOD | {"x": 1},
        {"e": [], "l": LEAF},
        {"e": [entry()], "l": LEAF},
        {"e": [entry(t=LEAF)], "l": None},
        {"e": [entry(k=b"blue", t=b"short")], "l": None},
        {"e": [entry(k=b"blue", t="text" * 9)], "l": None},
        {"e": [entry(k=b"blue", t=1)], "l": None},
        {"e": [entry(k=b"blue")], "l": "text" * 9},
        {"e": [entry(v=None)], "l": None},
        {"e": [entry(v=b"short")], "l": None},
        {"e": [entry(v="text" * 9)], "l": None},
        {"e": [entry(v=b"\x01\x55\x12\x20" + LEAF[4:])], "l": None},
        {"e": [entry(x=1)], "l": None},
        {"e": [entry(p=1)], "l": None},
        {"e": [entry(p=-1)], "l": None},
        {"e": [entry(p=False)], "l": None},
        {"e": [entry(p="0")], "l": None},
        {"e": [entry(k=b"")], "l": None},
        {"e": [entry(k="asdf")], "l": None},
        {"e": [entry(k=None)], "l": None},
        {"e": ["asdf"], "l": None},
        {"e": [None], "l": None},
        {"e": [entry(), entry()], "l": None},
        {"e": [entry(k=b"b"), entry(k=b"a")], "l": None},
        {"e": [entry(k=b"asdf"), entry(k=b"asdg")], "l": None},
        {"e": [entry(k=b"asdf"), entry(k=b"blue")], "l": None},
        {"e": [{}] * 600_000, "l": None},
    ],
)
def test_what_is_no_node(node: Any) -> None:
    raw = cbor.encode(node)
    with pytest.raises(AtprotoError) as caught:
        read_node(cid_of(raw), raw, None, None, None)
    assert caught.value.reason is Reason.BAD_NODE


def test_a_node_fits_its_place() -> None:
    raw = cbor.encode(GOOD)
    cid = cid_of(raw)
    assert read_node(cid, raw, 0, b"a", b"b").keys == [b"asdf"]
    for height, low, high in ((1, None, None), (0, b"asdf", None), (0, None, b"asdf"), (0, b"b", b"c")):
        with pytest.raises(AtprotoError) as caught:
            read_node(cid, raw, height, low, high)
        assert caught.value.reason is Reason.BAD_NODE


def test_a_node_has_one_form() -> None:
    raw = cbor.encode(GOOD).replace(b"\x61p\x00", b"\x61p\x18\x00")
    with pytest.raises(AtprotoError) as caught:
        read_node(cid_of(raw), raw, None, None, None)
    assert caught.value.reason is Reason.BAD_NODE
