"""ACLs and what follows from them, beside a model that knows no index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.access import RIGHTS, Acl, AclFilter, Kind, Operation, Pattern, Permission, Rules, acl_of, host_of
from headgate.gateway.access.store import read_row
from headgate.gateway.handlers import HANDLERS
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.security import AclCreation, DescribeAclsRequest
from headgate.wire.kafka.refusal import Refused

NAMES = ("a", "ab", "abc", "A", "b", "*", "ä", "a b", "a\nb", "'; drop table kafka.acls; --")
PRINCIPALS = ("User:a", "User:A", "User:ab", "User:*", "Group:a", "Group:*")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1")
acls = st.builds(
    Acl,
    st.sampled_from(Kind),
    st.sampled_from(Pattern),
    st.sampled_from(NAMES),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(Operation),
    st.sampled_from(Permission),
)
askers = st.tuples(st.sampled_from(("User:a", "User:A", "User:ab", "Group:a")), st.sampled_from(HOSTS[1:]))
wishes = st.tuples(st.sampled_from(sorted(set(Operation) - {Operation.ALL})), st.sampled_from(Kind))
LOOKS = {"READ", "WRITE", "DELETE", "ALTER", "DESCRIBE"}


def about(acl: Acl, kind: Kind, name: str) -> bool:
    if acl.kind != kind:
        return False
    return name.startswith(acl.name) if acl.pattern is Pattern.PREFIXED else acl.name in (name, "*")


def concerns(acl: Acl, principal: str, host: str) -> bool:
    everybody = principal.split(":")[0] + ":*"
    return acl.principal in (principal, everybody) and (acl.host == "*" or host_of(acl.host) == host_of(host))


def model(
    rules: list[Acl], principal: str, host: str, operation: Operation, kind: Kind, name: str, default: bool
) -> bool:
    """All ACLs, one after the other."""
    found = [acl for acl in rules if about(acl, kind, name)]
    mine = [acl for acl in found if concerns(acl, principal, host)]
    if any(acl.permission.name == "DENY" and acl.operation.name in ("ALL", operation.name) for acl in mine):
        return False
    enough = {"ALL", operation.name}
    if operation.name == "DESCRIBE":
        enough |= LOOKS
    if operation.name == "DESCRIBE_CONFIGS":
        enough.add("ALTER_CONFIGS")
    if any(acl.permission.name == "ALLOW" and acl.operation.name in enough for acl in mine):
        return True
    return default and not found


@given(st.lists(acls, max_size=12), askers, wishes, st.sampled_from(NAMES), st.booleans())
def test_rules_are_as_the_model_has_them(
    given_acls: list[Acl],
    who: tuple[str, str],
    wish: tuple[Operation, Kind],
    name: str,
    default: bool,
) -> None:
    rules = Rules(given_acls, allows_unnamed=default)
    expected = model(given_acls, *who, *wish, name, default)
    assert rules.allows(*who, *wish, name) is expected
    assert rules.allows(*who, *wish, name) is expected, "remembered"
    assert Rules(given_acls, superusers=[who[0]]).allows(*who, *wish, name)


@given(st.lists(acls, max_size=8), askers, wishes)
def test_some_name_is_allowed_only_if_there_is_one(
    given_acls: list[Acl], who: tuple[str, str], wish: tuple[Operation, Kind]
) -> None:
    """No name that is allowed is missed, of those that any ACL names and some that lie behind their prefixes."""
    names = {name for acl in given_acls for name in (acl.name, acl.name + "~", acl.name + "~~")} - {"*"}
    is_any = any(model(given_acls, *who, *wish, name, False) for name in names | {"zzz"})
    assert Rules(given_acls).allows_some(*who, *wish) >= is_any


def test_one_tenant_begins_like_another() -> None:
    rules = Rules(
        [
            Acl(Kind.TOPIC, Pattern.PREFIXED, "a.", "User:a", "*", Operation.ALL, Permission.ALLOW),
            Acl(Kind.TOPIC, Pattern.PREFIXED, "ab.", "User:ab", "*", Operation.ALL, Permission.ALLOW),
        ]
    )
    assert rules.allows("User:a", "h", Operation.READ, Kind.TOPIC, "a.x")
    assert not rules.allows("User:a", "h", Operation.READ, Kind.TOPIC, "ab.x")
    assert not rules.allows("User:ab", "h", Operation.READ, Kind.TOPIC, "a.x")
    assert not rules.allows("User:A", "h", Operation.READ, Kind.TOPIC, "a.x")
    assert not rules.allows("User:a", "h", Operation.READ, Kind.GROUP, "a.x")


def test_an_address_has_many_spellings() -> None:
    deny = Acl(Kind.TOPIC, Pattern.LITERAL, "t", "User:a", "0:0:0:0:0:0:0:1", Operation.ALL, Permission.DENY)
    allow = Acl(Kind.TOPIC, Pattern.LITERAL, "t", "User:a", "*", Operation.ALL, Permission.ALLOW)
    rules = Rules([allow, deny, deny._replace(host="10.0.0.9")])
    for host in ("::1", "10.0.0.9", "::ffff:10.0.0.9"):
        assert not rules.allows("User:a", host, Operation.READ, Kind.TOPIC, "t"), host
    assert rules.allows("User:a", "10.0.0.8", Operation.READ, Kind.TOPIC, "t")


def test_names_that_clients_choose_do_not_fill_the_memory() -> None:
    rules = Rules()
    for number in range(150_000):
        rules.allows("User:a", "h", Operation.READ, Kind.GROUP, str(number))
    assert sum(map(len, rules._decided.values())) <= 100_001


# -- filters


@given(acls)
def test_filters(acl: Acl) -> None:
    everything = AclFilter.parse(asked(1, None, 1))
    exact = AclFilter.parse(asked(acl.kind, acl.name, acl.pattern, acl.principal, acl.host, acl.operation))
    assert everything.fits(acl)
    assert exact.fits(acl)
    assert not AclFilter.parse(asked(acl.kind, acl.name + "x", acl.pattern)).fits(acl)
    assert not AclFilter.parse(asked(acl.kind, acl.name, 7 - acl.pattern)).fits(acl)
    assert AclFilter.parse(asked(acl.kind, acl.name, 2)).fits(acl)
    is_wide = acl.pattern is Pattern.PREFIXED or acl.name == "*"
    assert AclFilter.parse(asked(acl.kind, acl.name + "more", 2)).fits(acl) is is_wide
    assert not AclFilter.parse(asked(1, None, 1, principal=acl.principal.lower() + "x")).fits(acl)


def asked(
    kind: int, name: str | None, pattern: int, principal: str | None = None, host: str | None = None, operation: int = 1
) -> DescribeAclsRequest:
    return DescribeAclsRequest(kind, name, pattern, principal, host, operation, permission_type=1)


@pytest.mark.parametrize(
    "wrong",
    [{"resource_type_filter": 0}, {"pattern_type_filter": 0}, {"operation": 0}, {"permission_type": 9}],
    ids=str,
)
def test_an_unknown_value_is_not_any(wrong: dict[str, int]) -> None:
    values = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1} | wrong
    with pytest.raises(Refused) as caught:
        AclFilter.parse(DescribeAclsRequest(**values, resource_name_filter=None))  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_REQUEST


GOOD = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def test_what_can_be_an_acl() -> None:
    acl = acl_of(AclCreation(**GOOD))  # type: ignore[arg-type]
    assert acl == (Kind.TOPIC, Pattern.LITERAL, "orders", "User:alice", "*", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"resource_type": each} for each in (0, 1, 6, 7, 99)),
        *({"resource_pattern_type": each} for each in (0, 1, 2, 5)),
        *({"resource_name": each} for each in ("", "x" * 1001, "ä" * 501, "a\0b")),
        *({"principal": each} for each in ("", "alice", ":alice", "User:", "User:a\0", "User:" + "x" * 500)),
        *({"host": each} for each in ("", "h" * 101, "\0")),
        *({"operation": each} for each in (0, 1, 13, 15, 99)),
        *({"permission_type": each} for each in (0, 1, 4)),
        {"resource_type": 4},  # a cluster of another name
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_what_cannot(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused) as caught:
        acl_of(AclCreation(**(GOOD | wrong)))  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_REQUEST


# -- rows that somebody wrote by hand


@pytest.mark.parametrize("place", [0, 1, 5, 6])
@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_a_row_that_is_not_understood_never_allows(place: int, permission: str) -> None:
    row = ["TOPIC", "LITERAL", "orders", "User:alice", "*", "READ", permission]
    assert read_row(row)[1] is False
    row[place] = "nonsense"
    found, is_strange = read_row(row)
    assert is_strange
    every = Acl(Kind.TOPIC, Pattern.PREFIXED, "o", "User:alice", "*", Operation.ALL, Permission.ALLOW)
    is_allowed = Rules([*found, every]).allows("User:alice", "h", Operation.READ, Kind.TOPIC, "orders")
    assert is_allowed is (row[6] == "ALLOW"), "what was to be denied is denied, and more"
    assert not Rules(found).allows("User:alice", "h", Operation.READ, Kind.TOPIC, "orders")


# -- what each API takes


def test_every_api_has_declared_its_rights() -> None:
    assert set(RIGHTS) == set(HANDLERS)
