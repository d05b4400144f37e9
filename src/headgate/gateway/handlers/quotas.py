"""Limits for administrators: DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.quotas import ANY, Entity, Metric, QuotaStore
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.security import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    AlterQuota,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
    QuotaEntity,
    QuotaEntry,
    QuotaOperation,
    QuotaValue,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

_USER, _CLIENT = "user", "client-id"
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2  # how a component names entities
_MOST_BYTES = {_USER: 500, _CLIENT: 1000}

Named: TypeAlias = Mapping[str, str | None]
"""An entity by its parts; None is everybody who has no limit of his own."""


async def describe_quotas(context: Context, header: RequestHeader, request: DescribeClientQuotasRequest) -> Body:
    """Answer DescribeClientQuotas: the limits of the entities that fit a filter."""
    for component in request.components:
        _check_component(component)
    if len({each.entity_type for each in request.components}) != len(request.components):
        raise _invalid("an entity type is named twice")
    found = await QuotaStore(context.store.pool).all()
    named = ((_named(entity), values) for entity, values in found.items())
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=tuple(
            QuotaEntry(
                entity=tuple(QuotaEntity(kind, name) for kind, name in entity.items()),
                values=tuple(QuotaValue(key, value) for key, value in values.items()),
            )
            for entity, values in named
            if _fits(entity, request.components, is_strict=request.strict)
        ),
    )


def _check_component(component: QuotaComponent) -> None:
    _check_kind(component.entity_type)
    if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
        raise _invalid(f"there is no match type {component.match_type}")
    if (component.match_type == _EXACT) != (component.match is not None):
        raise _invalid("a name is given with the exact match, and with no other")


def _fits(entity: Named, components: Sequence[QuotaComponent], *, is_strict: bool) -> bool:
    if is_strict and len(components) != len(entity):
        return False
    return all(
        each.entity_type in entity and (each.match_type == _SPECIFIED or entity[each.entity_type] == each.match)
        for each in components
    )


def _named(entity: Entity) -> dict[str, str | None]:
    parts = ((_USER, entity.user), (_CLIENT, entity.client_id))
    return {kind: None if name == ANY else name for kind, name in parts if name}


async def alter_quotas(context: Context, header: RequestHeader, request: AlterClientQuotasRequest) -> Body:
    """Answer AlterClientQuotas: set and remove limits, for each entity all that is asked or nothing."""
    results = [await _altered(context, entry, request.validate_only) for entry in request.entries]
    if not request.validate_only:
        await context.services.meter.refresh(context.store.pool)
    return AlterClientQuotasResponse(entries=tuple(results))


async def _altered(context: Context, entry: AlterQuota, validate_only: bool) -> AlteredQuota:
    try:
        entity, values = _entity(entry.entity), _values(entry.ops)
    except Refused as refused:
        return AlteredQuota(error_code=refused.code, error_message=refused.message, entity=entry.entity)
    if not validate_only:
        await QuotaStore(context.store.pool).change(entity, values, str(context.session.principal))
    return AlteredQuota(error_message=None, entity=entry.entity)


def _entity(parts: Iterable[QuotaEntity]) -> Entity:
    names: dict[str, str] = {}
    for part in parts:
        _check_kind(part.entity_type)
        if part.entity_type in names:
            raise _invalid(f"{part.entity_type} is named twice")
        names[part.entity_type] = _name(part.entity_type, part.entity_name)
    if not names:
        raise _invalid("the entity has no part")
    return Entity(names.get(_USER, ""), names.get(_CLIENT, ""))


def _name(kind: str, name: str | None) -> str:
    if name is None:
        return ANY
    if name in ("", ANY) or "\0" in name or len(name.encode()) > _MOST_BYTES[kind]:
        raise _invalid(f"a {kind} has 1 to {_MOST_BYTES[kind]} bytes, and is not {ANY}; no name is everybody else")
    return name


def _values(ops: Iterable[QuotaOperation]) -> dict[Metric, float | None]:
    values: dict[Metric, float | None] = {}
    for op in ops:
        if op.key not in set(Metric):
            raise _invalid(f"there is no quota {op.key} here; there are {', '.join(Metric)}")
        if op.key in values:
            raise _invalid(f"{op.key} is changed twice")
        if not op.remove and not (math.isfinite(op.value) and op.value > 0):
            raise _invalid(f"{op.key} must be more than 0")
        values[Metric(op.key)] = None if op.remove else op.value
    return values


def _check_kind(kind: str) -> None:
    if kind not in _MOST_BYTES:
        raise _invalid(f"there are no quotas for {kind!r} here, only for {_USER} and {_CLIENT}")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def _alter_failed(request: AlterClientQuotasRequest, code: ErrorCode, message: str | None) -> Body:
    entries = (AlteredQuota(error_code=code, error_message=message, entity=each.entity) for each in request.entries)
    return AlterClientQuotasResponse(entries=tuple(entries))


def _describe_failed(request: DescribeClientQuotasRequest, code: ErrorCode, message: str | None) -> Body:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


HANDLERS: Handlers = {DescribeClientQuotasRequest: describe_quotas, AlterClientQuotasRequest: alter_quotas}
FAILURES: Failures = {DescribeClientQuotasRequest: _describe_failed, AlterClientQuotasRequest: _alter_failed}
