"""`headgate gateway quotas`: how much clients may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from headgate.cli.gateway_database import gateway_pool, gateway_url
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.gateway.quotas import ANY, Entity, Metric, QuotaStore
from headgate.model import UsageError

__all__ = ["quotas"]

_T = TypeVar("_T")
_NAME = "headgate gateway quotas"

quotas = typer.Typer(help="Quotas of the gateway's clients: list, set and remove them.", no_args_is_help=True)

UserOption = Annotated[str, typer.Option("--user", help="A user; * is every user who has no quota of his own.")]
ClientOption = Annotated[str, typer.Option("--client-id", help="A client id; * is every other one.")]
_LEAST = 0.001
ProducerOption = Annotated[
    float | None, typer.Option("--producer-byte-rate", min=_LEAST, help="Bytes of records that are sent, a second.")
]
ConsumerOption = Annotated[
    float | None, typer.Option("--consumer-byte-rate", min=_LEAST, help="Bytes of records that are read, a second.")
]
RequestOption = Annotated[
    float | None, typer.Option("--request-percentage", min=_LEAST, help="Percent of the gateway's time.")
]


@quotas.command("list")
def list_quotas(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the quotas; each gateway counts for itself.

    Example: headgate gateway quotas list
    """
    found = _with_store(config, QuotaStore.all)
    if as_json:
        print_json([{"user": each.user, "client_id": each.client_id, **values} for each, values in found.items()])
        return
    for entity, values in found.items():
        told = ", ".join(f"{key} {value:g}" for key, value in values.items())
        data_console.print(f"{_as_text(entity)}  {told}", soft_wrap=True, markup=False)
    if not found:
        note("there are none")


@quotas.command("set")
def set_quota(
    user: UserOption = "",
    client_id: ClientOption = "",
    producer_byte_rate: ProducerOption = None,
    consumer_byte_rate: ConsumerOption = None,
    request_percentage: RequestOption = None,
    config: ConfigOption = None,
) -> None:
    """Limit a user, a client id, or a user with a client id; it counts within a second.

    Example: headgate gateway quotas set --user alice --producer-byte-rate 1048576
    """
    entity = _entity(user, client_id)
    given = (producer_byte_rate, consumer_byte_rate, request_percentage)
    values = {metric: value for metric, value in zip(Metric, given, strict=True) if value is not None}
    if not values:
        raise UsageError("no limit is given", remedy="see: headgate gateway quotas set --help")
    _with_store(config, lambda store: store.change(entity, values, _NAME))
    note(f"{_as_text(entity)}  " + ", ".join(f"{key} {value:g}" for key, value in values.items()))


@quotas.command()
def remove(user: UserOption = "", client_id: ClientOption = "", config: ConfigOption = None) -> None:
    """Take all limits of a user, of a client id, or of both together away.

    Example: headgate gateway quotas remove --user alice
    """
    entity = _entity(user, client_id)

    async def work(store: QuotaStore) -> bool:
        known = await store.all()
        await store.change(entity, dict.fromkeys(Metric), _NAME)
        return entity in known

    if not _with_store(config, work):
        raise UsageError(f"there is no quota for {_as_text(entity)}", remedy="see: headgate gateway quotas list")
    note(f"{_as_text(entity)}  has no quota any more")


def _entity(user: str, client_id: str) -> Entity:
    if not user and not client_id:
        raise UsageError("nobody is named", remedy="give --user, --client-id, or both")
    if "\0" in user + client_id or len(user.encode()) > 500 or len(client_id.encode()) > 1000:
        raise UsageError("the name is too long", remedy="a user has up to 500 bytes, a client id up to 1000")
    return Entity(user, client_id)


def _as_text(entity: Entity) -> str:
    parts = (("user", entity.user), ("client id", entity.client_id))
    return " with ".join(f"any {kind}" if name == ANY else f"{kind} {name}" for kind, name in parts if name)


def _with_store(config: ConfigOption, work: Callable[[QuotaStore], Awaitable[_T]]) -> _T:
    async def run(url: str) -> _T:
        async with gateway_pool(url, _NAME) as pool:
            return await work(QuotaStore(pool))

    with gateway_url(config, _NAME) as url:
        return asyncio.run(run(url))
