"""Rights for administrators: DescribeAcls, CreateAcls, DeleteAcls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from headgate.gateway.access import Acl, AclAuthority, AclFilter, AclStore, acl_of
from headgate.gateway.context import Context, Failures, Handlers
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.security import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]


async def describe_acls(context: Context, header: RequestHeader, request: DescribeAclsRequest) -> Body:
    """Answer DescribeAcls: the ACLs that fit a filter, by what they are about."""
    store, _ = _acls(context)
    wanted = AclFilter.parse(request)
    found = sorted(acl for acl in await store.all() if wanted.fits(acl))
    return DescribeAclsResponse(
        error_message=None,
        resources=tuple(
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=tuple(AclDescription(*acl[3:]) for acl in acls),
            )
            for (kind, pattern, name), acls in groupby(found, key=lambda acl: acl[:3])
        ),
    )


async def create_acls(context: Context, header: RequestHeader, request: CreateAclsRequest) -> Body:
    """Answer CreateAcls: those that are right are made, all at once, and the others are refused one by one."""
    store, authority = _acls(context)
    wanted = [_wanted(creation) for creation in request.creations]
    good = [acl for acl in wanted if isinstance(acl, Acl)]
    if good:
        await store.add(good, str(context.session.principal))
        await authority.refresh()  # who asks for a right and gets it has it
    return CreateAclsResponse(results=tuple(_created(each) for each in wanted))


def _wanted(creation: AclCreation) -> Acl | Refused:
    try:
        return acl_of(creation)
    except Refused as refused:
        return refused


def _created(outcome: Acl | Refused) -> AclCreationResult:
    if isinstance(outcome, Refused):
        return AclCreationResult(error_code=outcome.code, error_message=outcome.message)
    return AclCreationResult(error_message=None)


async def delete_acls(context: Context, header: RequestHeader, request: DeleteAclsRequest) -> Body:
    """Answer DeleteAcls: what fits the filters that can be understood goes, all at once."""
    store, authority = _acls(context)
    filters = [_parsed(each) for each in request.filters]
    good = [each for each in filters if isinstance(each, AclFilter)]
    removed = await store.remove(good) if good else []
    if any(removed):
        await authority.refresh()
    found = iter(removed)
    return DeleteAclsResponse(
        filter_results=tuple(
            _not_deleted(each) if isinstance(each, Refused) else _deleted(next(found)) for each in filters
        )
    )


def _parsed(asked: DeleteAclsFilter) -> AclFilter | Refused:
    try:
        return AclFilter.parse(asked)
    except Refused as refused:
        return refused


def _deleted(acls: Sequence[Acl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.kind,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in sorted(acls)
        ),
    )


def _not_deleted(refused: Refused) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=refused.code, error_message=refused.message)


def _acls(context: Context) -> tuple[AclStore, AclAuthority]:
    """Where ACLs are. Raises `Refused` on a gateway that does not go by them: what does not count is not shown."""
    authority = context.services.authority
    if not isinstance(authority, AclAuthority):
        raise Refused(ErrorCode.SECURITY_DISABLED, _WITHOUT[context.options.authorization])
    return AclStore(context.store.pool), authority


_WITHOUT = {
    "none": "there are no ACLs here: whoever is let in may do everything",
    "roles": "there are no ACLs here: GRANT in PostgreSQL says what clients may do",
}


def _create_failed(request: CreateAclsRequest, code: ErrorCode, message: str | None) -> Body:
    failed = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=(failed,) * len(request.creations))


def _delete_failed(request: DeleteAclsRequest, code: ErrorCode, message: str | None) -> Body:
    failed = DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsResponse(filter_results=(failed,) * len(request.filters))


def _describe_failed(request: DescribeAclsRequest, code: ErrorCode, message: str | None) -> Body:
    return DescribeAclsResponse(error_code=code, error_message=message)


HANDLERS: Handlers = {
    DescribeAclsRequest: describe_acls,
    CreateAclsRequest: create_acls,
    DeleteAclsRequest: delete_acls,
}
FAILURES: Failures = {
    DescribeAclsRequest: _describe_failed,
    CreateAclsRequest: _create_failed,
    DeleteAclsRequest: _delete_failed,
}
