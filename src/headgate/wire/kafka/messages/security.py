"""Access and quotas: ACLs, SCRAM credentials, quotas.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-140 (ACLs), KIP-290 (patterns), KIP-546 (quotas),
KIP-554 (SCRAM).
"""

from __future__ import annotations

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Bool, Bytes, Float64, Int8, Int16, Int32, String

__all__ = [
    "ALTER_CLIENT_QUOTAS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    "CREATE_ACLS",
    "DELETE_ACLS",
    "DESCRIBE_ACLS",
    "DESCRIBE_CLIENT_QUOTAS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "AclCreation",
    "AclCreationResult",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlteredQuota",
    "AlteredScramUser",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribedScramUser",
    "ScramCredential",
    "ScramUpsertion",
    "ScramUserName",
]


class DescribeAclsRequest(Body, frozen=True):
    """Ask for the ACLs that fit a filter."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Body, frozen=True):
    """An ACL."""

    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Body, frozen=True):
    """What it is about."""

    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: tuple[AclDescription, ...] = ()


class DescribeAclsResponse(Body, frozen=True):
    """The ACLs."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: tuple[DescribeAclsResource, ...] = ()


class AclCreation(Body, frozen=True):
    """An ACL to be made."""

    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Body, frozen=True):
    """Make ACLs."""

    creations: tuple[AclCreation, ...] = ()


class AclCreationResult(Body, frozen=True):
    """What became of one."""

    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(Body, frozen=True):
    """What became of each."""

    throttle_time_ms: Int32 = 0
    results: tuple[AclCreationResult, ...] = ()


class DeleteAclsFilter(Body, frozen=True):
    """Which ACLs to delete."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Body, frozen=True):
    """Delete ACLs."""

    filters: tuple[DeleteAclsFilter, ...] = ()


class DeleteAclsMatchingAcl(Body, frozen=True):
    """An ACL that fitted."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Body, frozen=True):
    """What a filter did."""

    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


class DeleteAclsResponse(Body, frozen=True):
    """What each filter did."""

    throttle_time_ms: Int32 = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()


class QuotaComponent(Body, frozen=True):
    """A part of a filter of entities."""

    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(Body, frozen=True):
    """Ask for quotas."""

    components: tuple[QuotaComponent, ...] = ()
    strict: Bool = False


class QuotaEntity(Body, frozen=True):
    """A user, a client or an address."""

    entity_type: String = ""
    entity_name: String | None = ""


class QuotaValue(Body, frozen=True):
    """A quota."""

    key: String = ""
    value: Float64 = 0.0


class QuotaEntry(Body, frozen=True):
    """The quotas of an entity."""

    entity: tuple[QuotaEntity, ...] = ()
    values: tuple[QuotaValue, ...] = ()


class DescribeClientQuotasResponse(Body, frozen=True):
    """The quotas."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: tuple[QuotaEntry, ...] | None = ()


class QuotaOperation(Body, frozen=True):
    """A quota to set or to remove."""

    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class AlterQuota(Body, frozen=True):
    """What to do with the quotas of an entity."""

    entity: tuple[QuotaEntity, ...] = ()
    ops: tuple[QuotaOperation, ...] = ()


class AlterClientQuotasRequest(Body, frozen=True):
    """Set quotas."""

    entries: tuple[AlterQuota, ...] = ()
    validate_only: Bool = False


class AlteredQuota(Body, frozen=True):
    """What became of one entity's."""

    error_code: Int16 = 0
    error_message: String | None = ""
    entity: tuple[QuotaEntity, ...] = ()


class AlterClientQuotasResponse(Body, frozen=True):
    """What became of each."""

    throttle_time_ms: Int32 = 0
    entries: tuple[AlteredQuota, ...] = ()


class ScramUserName(Body, frozen=True):
    """A user."""

    name: String = ""


class DescribeUserScramCredentialsRequest(Body, frozen=True):
    """Ask which users have SCRAM credentials; null and empty mean all."""

    users: tuple[ScramUserName, ...] | None = ()


class ScramCredential(Body, frozen=True):
    """A mechanism that a user has; never the secret."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribedScramUser(Body, frozen=True):
    """A user's mechanisms."""

    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: tuple[ScramCredential, ...] = ()


class DescribeUserScramCredentialsResponse(Body, frozen=True):
    """The users."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: tuple[DescribedScramUser, ...] = ()


class ScramDeletion(Body, frozen=True):
    """A credential to be removed."""

    name: String = ""
    mechanism: Int8 = 0


class ScramUpsertion(Body, frozen=True):
    """A credential to be set."""

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""

    def __repr__(self) -> str:
        return f"ScramUpsertion(name={self.name!r}, mechanism={self.mechanism}, ***)"  # as good as the password


class AlterUserScramCredentialsRequest(Body, frozen=True):
    """Set and remove credentials."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()


class AlteredScramUser(Body, frozen=True):
    """What became of one user's."""

    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(Body, frozen=True):
    """What became of each."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlteredScramUser, ...] = ()


DESCRIBE_ACLS = Api(29, DescribeAclsRequest, DescribeAclsResponse, first=1, last=3, flexible=2)
CREATE_ACLS = Api(30, CreateAclsRequest, CreateAclsResponse, first=1, last=3, flexible=2)
DELETE_ACLS = Api(31, DeleteAclsRequest, DeleteAclsResponse, first=1, last=3, flexible=2)
DESCRIBE_CLIENT_QUOTAS = Api(48, DescribeClientQuotasRequest, DescribeClientQuotasResponse, first=0, last=1, flexible=1)
ALTER_CLIENT_QUOTAS = Api(49, AlterClientQuotasRequest, AlterClientQuotasResponse, first=0, last=1, flexible=1)
DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    50, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, first=0, last=0, flexible=0
)
ALTER_USER_SCRAM_CREDENTIALS = Api(
    51, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, first=0, last=0, flexible=0
)
