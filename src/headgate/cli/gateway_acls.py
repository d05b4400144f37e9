"""`headgate gateway acls`: what clients may do, for gateways with authorization = "acls"."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from headgate.cli.gateway_database import gateway_pool, gateway_url
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.gateway.access import CLUSTER_NAME, Acl, AclFilter, AclStore, Kind, Operation, Pattern, Permission, acl_of
from headgate.model import UsageError
from headgate.wire.kafka.messages.security import AclCreation
from headgate.wire.kafka.refusal import Refused

__all__ = ["acls"]

_T = TypeVar("_T")
_NAME = "headgate gateway acls"

acls = typer.Typer(
    help='ACLs of the gateway, which count with authorization = "acls": list, add and remove them.',
    no_args_is_help=True,
)

TopicOption = Annotated[str | None, typer.Option("--topic", help="A topic, or * for all.")]
GroupOption = Annotated[str | None, typer.Option("--group", help="A consumer group, or * for all.")]
TransactionOption = Annotated[str | None, typer.Option("--transactional-id", help="A transactional id, or * for all.")]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster as a whole.")]
PrefixOption = Annotated[bool, typer.Option("--prefix", help="The name is a prefix: all names that begin so.")]
PrincipalArgument = Annotated[str, typer.Argument(help="Who, as User:alice; User:* is everybody.")]
OperationOption = Annotated[
    list[str], typer.Option("--operation", help="READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ALL ...; repeatable.")
]
HostOption = Annotated[str, typer.Option("--host", help="The client's address.")]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny it, whatever else allows it.")]


@acls.command("list")
def list_acls(
    config: ConfigOption = None,
    principal: Annotated[str | None, typer.Option("--principal", help="Those of User:alice only.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Those that count for a topic only.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the ACLs.

    Example: headgate gateway acls list --topic orders
    """
    about = Kind.TOPIC if topic is not None else None
    wanted = AclFilter(kind=about, is_match=True, name=topic, principal=principal)
    found = sorted(acl for acl in _with_store(config, AclStore.all) if wanted.fits(acl))
    if as_json:
        print_json([_as_json(acl) for acl in found])
        return
    for acl in found:
        data_console.print(_as_line(acl), soft_wrap=True, markup=False)
    if not found:
        note("there are none")


@acls.command()
def add(
    principal: PrincipalArgument,
    operation: OperationOption,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionOption = None,
    cluster: ClusterOption = False,
    prefix: PrefixOption = False,
    host: HostOption = "*",
    deny: DenyOption = False,
    config: ConfigOption = None,
) -> None:
    """Allow somebody something, or deny it; every gateway of the database knows it at once.

    \b
    Examples:
      headgate gateway acls add User:alice --operation READ --topic orders. --prefix
      headgate gateway acls add User:alice --operation READ --group billing
    """
    made = _acls(principal, operation, (topic, group, transactional_id, cluster), prefix, host, deny)
    _with_store(config, lambda store: store.add(made, _NAME))
    for acl in made:
        note(_as_line(acl))


@acls.command()
def remove(
    principal: PrincipalArgument,
    operation: OperationOption,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionOption = None,
    cluster: ClusterOption = False,
    prefix: PrefixOption = False,
    host: HostOption = "*",
    deny: DenyOption = False,
    config: ConfigOption = None,
) -> None:
    """Take ACLs away that were added with the same arguments.

    Example: headgate gateway acls remove User:alice --operation READ --topic orders. --prefix
    """
    wanted = _acls(principal, operation, (topic, group, transactional_id, cluster), prefix, host, deny)
    removed = _with_store(config, lambda store: store.remove([_exactly(acl) for acl in wanted]))
    missing = [acl for acl, found in zip(wanted, removed, strict=True) if not found]
    if missing:
        raise UsageError(f"there is no such ACL: {_as_line(missing[0])}", remedy="see: headgate gateway acls list")
    note(f"removed: {len(wanted)}")


def _acls(
    principal: str,
    operations: list[str],
    about: tuple[str | None, str | None, str | None, bool],
    is_prefix: bool,
    host: str,
    is_denied: bool,
) -> list[Acl]:
    topic, group, transactional_id, is_cluster = about
    named = {Kind.TOPIC: topic, Kind.GROUP: group, Kind.TRANSACTIONAL_ID: transactional_id}
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if is_cluster:
        given.append((Kind.CLUSTER, CLUSTER_NAME))
    if len(given) != 1:
        raise UsageError(
            "an ACL is about one thing", remedy="give one of --topic, --group, --transactional-id and --cluster"
        )
    ((kind, name),) = given
    pattern = Pattern.PREFIXED if is_prefix else Pattern.LITERAL
    permission = Permission.DENY if is_denied else Permission.ALLOW
    return [
        _acl(AclCreation(kind, name, pattern, principal, host, _operation(each), permission)) for each in operations
    ]


def _operation(name: str) -> Operation:
    try:
        return Operation[name.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(Operation.__members__)
        raise UsageError(f"there is no operation {name}", remedy=f"use one of {known}") from None


def _acl(asked: AclCreation) -> Acl:
    try:
        return acl_of(asked)
    except Refused as refused:
        raise UsageError(str(refused), remedy="see: headgate gateway acls add --help") from None


def _exactly(acl: Acl) -> AclFilter:
    return AclFilter(
        kind=acl.kind,
        pattern=acl.pattern,
        name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def _with_store(config: ConfigOption, work: Callable[[AclStore], Awaitable[_T]]) -> _T:
    async def run(url: str) -> _T:
        async with gateway_pool(url, _NAME) as pool:
            return await work(AclStore(pool))

    with gateway_url(config, _NAME) as url:
        return asyncio.run(run(url))


def _as_json(acl: Acl) -> dict[str, str]:
    return {
        "resource": acl.kind.name,
        "pattern": acl.pattern.name,
        "name": acl.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _as_line(acl: Acl) -> str:
    name = f"{acl.name}..." if acl.pattern is Pattern.PREFIXED else acl.name
    what = f"{acl.operation.name} on {acl.kind.name} {name}"
    return f"{acl.principal}  {acl.permission.name} {what}" + ("" if acl.host == "*" else f"  from {acl.host}")
