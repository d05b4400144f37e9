"""The Merkle search tree of a repository: changed, proved, and turned back.

    invert(data, blocks, ops) == prev_data

is what makes a commit trustworthy beyond its signature: undoing the ops on the tree after it, of which the commit
brings just the nodes that are needed, must give the root of the tree before it. An op that is left out, or one that
lies about a CID, gives another root.

`Tree` reads nodes when it comes to them. When only a link in a node changed, the CID is replaced in the node's bytes,
which costs a fraction of writing it anew.

Specification: AT Protocol, "Repository", MST Structure and Repository Diffs; "Sync", Reliable Repository
Synchronization.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from headgate.wire.atproto.cid import cid_of
from headgate.wire.atproto.errors import AtprotoError, Reason
from headgate.wire.atproto.events import Action, Op
from headgate.wire.atproto.mst_node import (
    EMPTY_BLOCK,
    EMPTY_ROOT,
    Child,
    Node,
    key_height,
    read_node,
    write_node,
)

__all__ = ["Tree", "build_tree", "check_ops", "invert"]


def check_ops(ops: Sequence[Op]) -> None:
    """Raise BAD_OPS unless each path comes once, and each op has the CIDs that its action needs.

    Specification: "Sync", `#commit` Events, fields of `ops`.
    """
    if len({op.path for op in ops}) != len(ops):
        raise AtprotoError(Reason.BAD_OPS, "a path comes twice in one commit")
    for op in ops:
        wanted = (op.action is not Action.DELETE, op.action is not Action.CREATE)
        if (op.cid is not None, op.prev is not None) != wanted:
            raise AtprotoError(Reason.BAD_OPS, f"{op.action} of {op.path} has not the CIDs that it needs")


def invert(root: bytes, blocks: Mapping[bytes, bytes], ops: Sequence[Op]) -> bytes:
    """The root of the tree before these ops. The ops must have passed `check_ops`.

    Raises OP_MISMATCH when the tree does not hold what an op says, MISSING_BLOCK and BAD_NODE for the blocks.
    """
    tree = Tree(root, blocks)
    for op in sorted(ops, key=_inversion_order):
        key = op.path.encode()
        if op.prev is None:
            assert op.cid is not None
            tree.remove(key, op.cid)
        elif op.cid is None:
            tree.insert(key, op.prev)
        else:
            tree.replace(key, op.cid, op.prev)
    return tree.root()


def _inversion_order(op: Op) -> tuple[bool, str]:
    return op.action is not Action.DELETE, op.path


class Tree:
    """A tree that is read from blocks as far as needed, and changed in memory."""

    __slots__ = ("_blocks", "_top", "written")

    def __init__(self, root: bytes, blocks: Mapping[bytes, bytes]) -> None:
        self._blocks = blocks
        self.written: dict[bytes, bytes] = {}
        self._top: Node | None = None
        if root != EMPTY_ROOT:
            self._top = self._read(root, None, None, None)

    def get(self, key: bytes) -> bytes | None:
        node, height = self._top, key_height(key)
        while node is not None and node.height >= height:
            index = bisect_left(node.keys, key)
            if index < len(node.keys) and node.keys[index] == key:
                return node.values[index]
            node = self._child(node, index)
        return None

    def insert(self, key: bytes, value: bytes) -> None:
        """Put a key that must not be there yet."""
        height, top = key_height(key), self._top
        if top is None:
            self._top = Node(height, [key], [value], [None, None])
            return
        if height > top.height:
            self._top = self._raised(top, key, value, height)
            return
        node = self._descend(top, key, height)
        index = bisect_left(node.keys, key)
        if index < len(node.keys) and node.keys[index] == key:
            raise AtprotoError(Reason.OP_MISMATCH, f"{key!r} is said to be gone, but the tree has it")
        halves = self._split(self._child(node, index), key)
        node.keys.insert(index, key)
        node.values.insert(index, value)
        node.children[index : index + 1] = halves
        node.raw = None

    def replace(self, key: bytes, old: bytes, new: bytes) -> None:
        """Give a key another value; it must have the old one."""
        node, index = self._find(key, old)
        node.values[index] = new
        if node.raw is not None:
            node.raw = node.raw.replace(old, new) if node.raw.count(old) == 1 else None

    def remove(self, key: bytes, value: bytes) -> None:
        """Take out a key, which must have this value."""
        node, index = self._find(key, value)
        merged = self._merge(node, index, node, index + 1)
        del node.keys[index], node.values[index]
        node.children[index : index + 2] = [merged]
        node.raw = None

    def root(self) -> bytes:
        """The CID of the tree. Nodes that became needless on top are left out, as the one form of a tree demands.

        Nodes that had to be written for it are added to `written`.
        """
        node = self._top
        while node is not None and not node.keys:
            node = self._child(node, 0)  # read even if nothing in it changed, since it may have no keys either
        self._top = node
        return EMPTY_ROOT if node is None else self._write(node) or EMPTY_ROOT

    def proof(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The nodes that prove the values, or the absence, of keys and that nothing is between them and their
        neighbours. Call `root` first.
        """
        found: dict[bytes, bytes] = {}
        if self._top is not None:
            _keep(found, self._top)
        for key in keys:
            node = self._top
            while node is not None:
                _keep(found, node)
                index = bisect_left(node.keys, key)
                if index < len(node.keys) and node.keys[index] == key:
                    self._keep_edge(found, self._child(node, index), -1)
                    self._keep_edge(found, self._child(node, index + 1), 0)
                    break
                node = self._child(node, index)
        return found or {EMPTY_ROOT: EMPTY_BLOCK}

    def nodes(self) -> dict[bytes, bytes]:
        """All nodes of the tree. Call `root` first."""
        found: dict[bytes, bytes] = {}
        waiting = [self._top]
        while waiting:
            node = waiting.pop()
            if node is not None:
                _keep(found, node)
                waiting += [self._child(node, index) for index in range(len(node.children))]
        return found or {EMPTY_ROOT: EMPTY_BLOCK}

    def _keep_edge(self, found: dict[bytes, bytes], node: Node | None, side: int) -> None:
        while node is not None:
            _keep(found, node)
            node = self._child(node, side % len(node.children))

    def _read(self, cid: bytes, height: int | None, low: bytes | None, high: bytes | None) -> Node:
        raw = self._blocks.get(cid)
        if raw is None:
            raise AtprotoError(Reason.MISSING_BLOCK, "a node that the ops need is not among the blocks")
        return read_node(cid, raw, height, low, high)

    def _child(self, node: Node, index: int) -> Node | None:
        child = node.children[index]
        if isinstance(child, bytes):
            low = node.keys[index - 1] if index else node.low
            high = node.keys[index] if index < len(node.keys) else node.high
            child = node.children[index] = self._read(child, node.height - 1, low, high)
        return child

    def _find(self, key: bytes, value: bytes) -> tuple[Node, int]:
        """Where a key is, which must have this value. All nodes down to there count as changed."""
        height, node = key_height(key), self._top
        while node is not None and node.height >= height:
            node.cid = None
            index = bisect_left(node.keys, key)
            if node.height == height:
                if index < len(node.keys) and node.keys[index] == key and node.values[index] == value:
                    return node, index
                break
            node = self._child(node, index)
        raise AtprotoError(Reason.OP_MISMATCH, f"{key!r} has not the value in the tree that its op says")

    def _descend(self, node: Node, key: bytes, height: int) -> Node:
        """The node of this height where the key belongs, made if need be. All nodes down to there count as changed."""
        node.cid = None
        while node.height > height:
            index = bisect_left(node.keys, key)
            child = self._child(node, index)
            if child is None:
                child = node.children[index] = Node(node.height - 1, [], [], [None])
                node.raw = None
            child.cid = None
            node = child
        return node

    def _raised(self, top: Node, key: bytes, value: bytes, height: int) -> Node:
        """A new top for a key that is higher than all others."""
        left, right = self._split(top, key)
        for level in range(top.height + 1, height):
            left = left and Node(level, [], [], [left])
            right = right and Node(level, [], [], [right])
        return Node(height, [key], [value], [left, right])

    def _split(self, node: Node | None, key: bytes) -> tuple[Node | None, Node | None]:
        if node is None:
            return None, None
        index = bisect_left(node.keys, key)
        left_child, right_child = self._split(self._child(node, index), key)
        left = Node(node.height, node.keys[:index], node.values[:index], [*node.children[:index], left_child])
        right = Node(node.height, node.keys[index:], node.values[index:], [right_child, *node.children[index + 1 :]])
        left.low, left.high = node.low, key
        right.low, right.high = key, node.high
        return _unless_empty(left), _unless_empty(right)

    def _merge(self, before: Node, index: int, behind: Node, other: int) -> Child:
        """Two children as one; what is between them has been taken out. Nothing is read when one of them is not."""
        if before.children[index] is None:
            return behind.children[other]
        if behind.children[other] is None:
            return before.children[index]
        left, right = self._child(before, index), self._child(behind, other)
        assert left is not None
        assert right is not None
        middle = self._merge(left, len(left.keys), right, 0)
        children = [*left.children[:-1], middle, *right.children[1:]]
        merged = Node(left.height, left.keys + right.keys, left.values + right.values, children)
        merged.low, merged.high = left.low, right.high
        return merged

    def _write(self, node: Node) -> bytes | None:
        """The CID of a node, None when nothing is left in it."""
        if node.cid is not None:
            return node.cid
        links = [self._write(child) if isinstance(child, Node) else child for child in node.children]
        if not node.keys and links[0] is None:
            return None
        raw = _patched(node, links) or write_node(node, links)
        node.cid, node.raw, node.links = cid_of(raw), raw, links
        self.written[node.cid] = raw
        return node.cid


def build_tree(items: Mapping[bytes, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    """The root and all nodes of a tree, made at once from its keys and values."""
    tree = Tree(EMPTY_ROOT, {})
    keys = sorted(items)
    heights = {key: key_height(key) for key in keys}
    if keys:
        tree._top = _built(keys, items, heights, max(heights.values()))
    root = tree.root()
    return root, tree.written or {EMPTY_ROOT: EMPTY_BLOCK}


def _built(keys: list[bytes], items: Mapping[bytes, bytes], heights: Mapping[bytes, int], height: int) -> Node | None:
    if not keys:
        return None
    here = [index for index, key in enumerate(keys) if heights[key] == height]
    bounds = zip([-1, *here], [*here, len(keys)], strict=True)
    children: list[Child] = [_built(keys[low + 1 : high], items, heights, height - 1) for low, high in bounds]
    return Node(height, [keys[index] for index in here], [items[keys[index]] for index in here], children)


def _unless_empty(node: Node) -> Node | None:
    return node if node.keys or node.children[0] is not None else None


def _keep(found: dict[bytes, bytes], node: Node) -> None:
    if node.cid is not None and node.raw is not None:
        found[node.cid] = node.raw


def _patched(node: Node, links: list[bytes | None]) -> bytes | None:
    """The node's bytes with its changed links exchanged, if that is all that changed and it can be done."""
    raw = node.raw
    if raw is None:
        return None
    for old, new in zip(node.links, links, strict=True):
        if old != new:
            if old is None or new is None or raw.count(old) != 1:
                return None
            raw = raw.replace(old, new)
    return raw
