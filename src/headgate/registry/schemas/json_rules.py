"""Whether everything that one JSON Schema allows is allowed by another one, too.

What is called compatible is: a property test compares with a validator. What cannot be decided here (patterns, formats
of one's own, conditions, `not`, branches of `oneOf` that may overlap) is called incompatible unless it stands in both
schemas alike. Content models follow from that: where a schema lets properties in that it does not name, a later schema
cannot give one of them a type, since it may be there already with another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.registry.schemas import json_facts as facts
from headgate.registry.schemas.assumed import Comparison
from headgate.registry.schemas.bounds import same_json
from headgate.registry.schemas.json_schema import Document, Node
from headgate.registry.schemas.json_values import accepts
from headgate.registry.schemas.problems import Problem

__all__ = ["json_problems"]

_Nodes = tuple[Node, ...]
_Rule = Callable[["_Inclusion", _Nodes, Node, str], list[Problem]]
# They say nothing of a value without these.
_BESIDE = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
_ALIKE = (
    "pattern", "contains", "minContains", "maxContains", "if", "then", "else", "dependencies", "dependentSchemas",
)  # fmt: skip
_NEVER = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")  # depend on all around them


def json_problems(reader: Document, writer: Document) -> list[Problem]:
    """Return what of the writer's values the reader's schema would refuse; empty if none."""
    return _Inclusion().check((writer.node(),), reader.node(), "")


@dataclass(slots=True)
class _Inclusion:
    comparison: Comparison = field(default_factory=Comparison)
    _here: set[object] = field(default_factory=set)  # pairs that are being looked at for this very value
    _made: dict[tuple[int, str], Node] = field(default_factory=dict)  # nodes that stand in no document
    _kept: list[Any] = field(default_factory=list)  # so that their identity is not given to others

    def check(self, old: _Nodes, new: Node, path: str) -> list[Problem]:
        """Return why a value of all `old` may be none of `new`.

        A pair that is being looked at may be assumed to fit only further inside of the value.
        """
        key = (frozenset(map(_key, old)), _key(new))
        if key in self._here:
            return [Problem("NOT_COMPARED", path, "the comparison leads back to itself")]
        self._here.add(key)
        try:
            return self.comparison.once(key, lambda: self._check(old, new, path))
        finally:
            self._here.discard(key)

    def below(self, old: _Nodes, new: Node, path: str) -> list[Problem]:
        """Return the same for a part of the value: a property or an item."""
        here, self._here = self._here, set()
        try:
            return self.check(old, new, path)
        finally:
            self._here = here

    def _check(self, old: _Nodes, new: Node, path: str) -> list[Problem]:
        if new.value is True or new.value == {}:
            return []
        given, old = old, self.flat(old)
        if facts.forbids(old) or not facts.types_of(old):
            return []
        if any(self.alike(each, new) for each in (*given, *old)):
            return []
        if new.value is False:
            return [Problem("NOTHING_ALLOWED", path, "the reader allows nothing here, and the writer does")]
        for key in ("anyOf", "oneOf"):
            if key in new.value and _stands_in(self, old, new, (key,)):
                new = self._without(new, key)
        return self._split(old, new, path)

    def _split(self, old: _Nodes, new: Node, path: str) -> list[Problem]:
        """Look at the writer's possibilities one by one."""
        values = facts.values_of(old)
        if values is not None:
            refused = [each for each in values if type_fits(each, old) and not accepts(new, each, self.comparison)]
            text = f"the writer may write {refused[:3]}"
            return [Problem("ENUM_NARROWED", path, text)] if refused else []
        for number, node in enumerate(old):
            for key in ("anyOf", "oneOf"):
                if key in node.value:
                    rest = (*old[:number], self._without(node, key), *old[number + 1 :])
                    return self._each(rest, [Node(node.document, each) for each in node.value[key]], new, path)
        types = facts.types_of(old)
        kinds = sorted(types - {"integer"} if "number" in types else types)
        if len(kinds) > 1 and ("anyOf" in new.value or "oneOf" in new.value):
            return self._each(old, [self.of_type(new, each) for each in kinds], new, path)
        return self._rules(old, new, path)

    def _each(self, old: _Nodes, branches: Sequence[Node], new: Node, path: str) -> list[Problem]:
        return [problem for branch in branches for problem in self.check((*old, branch), new, path)]

    def _rules(self, old: _Nodes, new: Node, path: str) -> list[Problem]:
        problems = [each for rule in _RULES for each in rule(self, old, new, path)]
        types = facts.types_of(old)
        for type_name, rules in _RULES_OF_TYPES.items():
            if type_name in types:
                problems += [each for rule in rules for each in rule(self, old, new, path)]
        return list(dict.fromkeys(problems))

    def flat(self, nodes: _Nodes) -> _Nodes:
        """References followed, and `allOf` taken apart. What a reference has beside it is left out, as draft 7 does."""
        found: list[Node] = []
        seen: set[object] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            self.comparison.step()
            if _key(node) in seen or node.value is True:
                continue
            seen.add(_key(node))
            if node.value is False:
                return (node,)
            if "$ref" in node.value:
                target = node.document.resolve(node.value["$ref"])
                waiting += [target] if target else []
                continue
            waiting += [Node(node.document, each) for each in node.value.get("allOf", ())]
            found.append(self._without(node, "allOf") if "allOf" in node.value else node)
        return tuple(found)

    def alike(self, one: Node, other: Node) -> bool:
        """Whether two schemas are the same, with all that they refer to."""
        return self._same(one.value, other.value) and self._same_targets(one, other)

    def _same(self, one: Any, other: Any) -> bool:
        self.comparison.step()
        return same_json(one, other)

    def _same_targets(self, one: Node, other: Node) -> bool:
        return not _refers(one.value) or (
            self._same(one.document.root, other.document.root) and _same_named(one, other)
        )

    def _without(self, node: Node, key: str) -> Node:
        name = (id(node.value), key)
        if name not in self._made:
            self._kept.append(node)
            self._made[name] = Node(node.document, {k: v for k, v in node.value.items() if k != key})
        return self._made[name]

    def of_type(self, node: Node, name: str) -> Node:
        if (0, name) not in self._made:
            self._made[0, name] = Node(node.document, {"type": name})
        return self._made[0, name]


def type_fits(value: Any, nodes: _Nodes) -> bool:
    """Whether the writer's types let a value of its list through at all."""
    return facts.type_of(value) in facts.types_of(nodes)


def _key(node: Node) -> object:
    return node.value if isinstance(node.value, bool) else (id(node.document), id(node.value))


def _refers(value: Any) -> bool:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if any(key in each for key in ("$ref", "$dynamicRef", "$recursiveRef")):
                return True
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return False


def _same_named(one: Node, other: Node) -> bool:
    mine, theirs = one.document.named, other.document.named
    return mine.keys() == theirs.keys() and all(
        same_json(document.root, theirs[name].root) and _same_named(document.node(), theirs[name].node())
        for name, document in mine.items()
    )


def _reference(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    if "$ref" not in new.value:
        return []
    target = new.document.resolve(new.value["$ref"])
    if target is None:
        return [Problem("UNKNOWN_REFERENCE", path, f"{new.value['$ref']} is not followed")]
    return look.check(old, target, f"{path}/$ref")


def _types(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    allowed = facts.types_said(new)
    missing = () if allowed is None else sorted(facts.types_of(old) - allowed)
    if missing:
        return [Problem("TYPE_NARROWED", f"{path}/type", f"the writer may write {', '.join(missing)}")]
    return []


def _values(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    """The writer lists no values, or they would have been looked at one by one."""
    if "enum" in new.value or "const" in new.value:
        if facts.types_of(old) <= {"null", "boolean"} and all(
            accepts(new, value, look.comparison) for value in _few(facts.types_of(old))
        ):
            return []
        return [Problem("ENUM_ADDED", path, "the reader lists its values, and the writer does not")]
    return []


def _few(types: frozenset[str]) -> list[Any]:
    return [*([None] if "null" in types else []), *([True, False] if "boolean" in types else [])]


def _combined(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    problems: list[Problem] = []
    for number, branch in enumerate(new.value.get("allOf", ())):
        problems += look.check(old, Node(new.document, branch), f"{path}/allOf/{number}")
    for key in ("anyOf", "oneOf"):
        if key in new.value and not _is_included_in_one(look, old, new, key, path):
            problems.append(Problem("COMBINED_TYPE_NARROWED", f"{path}/{key}", _NO_BRANCH[key]))
    return problems


_NO_BRANCH = {
    "anyOf": "no branch of the reader takes all of it",
    "oneOf": "no branch of the reader takes all of it while all others take none",
}


def _is_included_in_one(look: _Inclusion, old: _Nodes, new: Node, key: str, path: str) -> bool:
    branches = [Node(new.document, each) for each in new.value[key]]
    for number, branch in enumerate(branches):
        if look.check(old, branch, f"{path}/{key}/{number}"):
            continue
        others = branches[:number] + branches[number + 1 :]
        if key == "anyOf" or all(_is_disjoint(look, old, other) for other in others):
            return True
    return False


def _is_disjoint(look: _Inclusion, old: _Nodes, other: Node) -> bool:
    """Whether it is certain that no value is in both: by its type, or by a property that tells them apart."""
    branch = look.flat((other,))
    if facts.forbids(branch):
        return True
    types = facts.types_of(old) & facts.types_of(branch)
    if not types:
        return True
    values = facts.values_of((*old, *branch))
    if values is not None and not values:
        return True
    if types != {"object"}:
        return False
    mine, theirs = facts.required(old), facts.required(branch)
    return any(_differs(look, old, branch, name) for name in mine) or any(
        facts.forbids(look.flat(facts.property_named(old, name))) for name in theirs
    )


def _differs(look: _Inclusion, old: _Nodes, branch: _Nodes, name: str) -> bool:
    """Whether a property that is always there has a value in one that it cannot have in the other."""
    one = look.flat(facts.property_named(old, name))
    other = look.flat(facts.property_named(branch, name))
    if facts.forbids(other):
        return True
    values = facts.values_of((*one, *other))
    return (values is not None and not values) or not facts.types_of(one) & facts.types_of(other)


def _negated(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    if "not" not in new.value or _stands_in(look, old, new, ("not",)):
        return []
    if _is_disjoint(look, old, Node(new.document, new.value["not"])):
        return []
    return [Problem("NOT_TYPE_NARROWED", f"{path}/not", "the writer may write what the reader excludes")]


def _kept_alike(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    meant = [key for key in _ALIKE if key in new.value and _BESIDE.get(key, key) in new.value]
    problems = [
        Problem("NOT_COMPARED", f"{path}/{key}", f"{key} is only compatible where both have it")
        for key in meant
        if not _stands_alike(look, old, new, key)
    ]
    problems += [
        Problem("NOT_COMPARED", f"{path}/{key}", f"{key} is only compatible in a schema that stays as it is")
        for key in _NEVER
        if key in new.value
    ]
    return problems


def _stands_alike(look: _Inclusion, old: _Nodes, new: Node, key: str) -> bool:
    group = [each for each in _ALIKE if _BESIDE.get(each, each) == _BESIDE.get(key, key)]
    if _stands_in(look, old, new, group):
        return True
    types = facts.types_of(old)
    of_one_type = {"pattern": "string", "contains": "array", "dependencies": "object", "dependentSchemas": "object"}
    return of_one_type.get(_BESIDE.get(key, key)) not in (None, *types)


def _stands_in(look: _Inclusion, old: _Nodes, new: Node, keys: Sequence[str]) -> bool:
    """Whether one of the writer's schemas has all of these keywords, and alike."""
    wanted = Node(new.document, {key: new.value[key] for key in keys if key in new.value})
    return any(look.alike(Node(each.document, _picked(each.value, keys)), wanted) for each in old)


def _picked(value: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value}


def _numbers(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    problems = []
    least, greatest = facts.lower([new]), facts.upper([new])
    if least is not None and ((mine := facts.lower(old)) is None or mine < least):
        problems.append(Problem("MINIMUM_INCREASED", f"{path}/minimum", "the writer may write less"))
    if greatest is not None and (
        (most := facts.upper(old)) is None or (most[0], -most[1]) > (greatest[0], -greatest[1])
    ):
        problems.append(Problem("MAXIMUM_DECREASED", f"{path}/maximum", "the writer may write more"))
    if "multipleOf" in new.value and not facts.multiple(old, facts.exact(new.value["multipleOf"])):
        problems.append(Problem("MULTIPLE_OF_CHANGED", f"{path}/multipleOf", "the writer may write what is between"))
    return problems


def _counts(subject: str) -> _Rule:
    def rule(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
        problems = []
        least, most = f"min{subject}", f"max{subject}"
        floor = facts.count_bound(old, least, max) or 0
        if subject == "Properties":
            floor = max(floor, len(facts.required(old)))
        if new.value.get(least, 0) > floor:
            problems.append(Problem(f"MIN_{subject.upper()}_INCREASED", f"{path}/{least}", "the writer may have fewer"))
        limit = facts.count_bound(old, most, min)
        if most in new.value and (limit is None or limit > new.value[most]):
            problems.append(Problem(f"MAX_{subject.upper()}_DECREASED", f"{path}/{most}", "the writer may have more"))
        return problems

    return rule


def _items(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    problems: list[Problem] = []
    most = facts.count_bound(old, "maxItems", min)
    count = max(facts.prefix_length(old), facts.prefix_length([new]))
    for number in range(count if most is None else min(count, int(most))):
        (wanted,) = facts.item([new], number)
        problems += look.below(facts.item(old, number), wanted, f"{path}/items/{number}")
    if most is None or most > count:
        (wanted,) = facts.other_items([new])
        problems += look.below(facts.other_items(old), wanted, f"{path}/items")
    is_unique = any(each.value.get("uniqueItems") is True for each in old) or (most is not None and most <= 1)
    if new.value.get("uniqueItems") is True and not is_unique:
        problems.append(Problem("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "the writer may repeat items"))
    return problems


def _required(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    given = facts.required(old)
    missing = sorted(facts.required([new]) - given)
    problems = [
        Problem("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required", f"the writer may leave out '{name}'")
        for name in missing
    ]
    for name, names in new.value.get("dependentRequired", {}).items():
        theirs = {each for node in old for each in node.value.get("dependentRequired", {}).get(name, ())}
        if not set(names) <= given | theirs and not facts.forbids(look.flat(facts.property_named(old, name))):
            place = f"{path}/dependentRequired/{name}"
            problems.append(Problem("DEPENDENCY_ADDED", place, f"the writer may leave out {', '.join(names)}"))
    return problems


def _properties(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    is_alike = _stands_in(look, old, new, ("patternProperties", "additionalProperties"))
    patterns = {} if is_alike else new.value.get("patternProperties", {})
    own = new.value.get("properties", {})
    additional = new.value.get("additionalProperties", True)
    names = dict.fromkeys([*own, *(name for node in old for name in node.value.get("properties", {}))])
    problems: list[Problem] = []
    for name in names:
        wanted = [own[name]] if name in own else [additional]
        known = facts.property_named(old, name)
        for each in (*wanted, *patterns.values()):  # which names a pattern stands for is not asked
            problems += look.below(known, Node(new.document, each), f"{path}/properties/{name}")
    others = facts.other_properties(old)
    for each in () if is_alike else (additional, *patterns.values()):
        problems += look.below(others, Node(new.document, each), f"{path}/additionalProperties")
    return problems


def _names(look: _Inclusion, old: _Nodes, new: Node, path: str) -> list[Problem]:
    if "propertyNames" not in new.value:
        return []
    theirs = [Node(each.document, each.value["propertyNames"]) for each in old if "propertyNames" in each.value]
    wanted = Node(new.document, new.value["propertyNames"])
    return look.below((*theirs, look.of_type(new, "string")), wanted, f"{path}/propertyNames")


_RULES: tuple[_Rule, ...] = (_reference, _types, _values, _combined, _negated, _kept_alike)
_RULES_OF_TYPES: dict[str, tuple[_Rule, ...]] = {
    "integer": (_numbers,),
    "number": (_numbers,),
    "string": (_counts("Length"),),
    "array": (_counts("Items"), _items),
    "object": (_counts("Properties"), _required, _properties, _names),
}
