"""Users with SCRAM credentials (KIP-554): DescribeUserScramCredentials and AlterUserScramCredentials.

Those of the configuration are shown, and cannot be changed. A user is altered as a whole or not at all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.login import LEAST_ITERATIONS, Keys, store
from headgate.gateway.login.keys import ALGORITHMS, MOST_ITERATIONS, USUAL_ITERATIONS
from headgate.gateway.login.store import Edit
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.security import (
    AlteredScramUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

_MECHANISMS = dict(enumerate(ALGORITHMS, start=1))  # as KIP-554 numbers them
_NUMBERS = {mechanism: number for number, mechanism in _MECHANISMS.items()}
_MOST_NAME_BYTES, _MOST_SALT_BYTES = 255, 1024  # as kafka.users has them
_SALTED_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONFIGURED = "this user is in the gateway's configuration, and can be changed only there"


async def describe_users(context: Context, header: RequestHeader, request: DescribeUserScramCredentialsRequest) -> Body:
    """Answer DescribeUserScramCredentials: users and mechanisms, never a secret."""
    asked = [each.name for each in request.users or ()]
    known = {name: dict.fromkeys(_NUMBERS, USUAL_ITERATIONS) for name in sorted(context.options.users)}
    async with context.store.pool.connection() as connection:
        rows = await store.everybody(connection, asked or None)
    for row in rows:
        if row.name not in context.options.users and row.keys:
            known.setdefault(row.name, {})[row.mechanism] = row.keys.iterations
    counts = Counter(asked)
    results = tuple(_described(name, known.get(name), counts[name]) for name in (dict.fromkeys(asked) or known))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(name: str, iterations: dict[str, int] | None, times_asked: int) -> DescribedScramUser:
    if times_asked > 1:
        return DescribedScramUser(
            user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message="the user is named more than once"
        )
    if iterations is None:
        return DescribedScramUser(
            user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message="there is no such user"
        )
    found = tuple(ScramCredential(mechanism=_NUMBERS[each], iterations=count) for each, count in iterations.items())
    return DescribedScramUser(user=name, error_message=None, credential_infos=found)


async def alter_users(context: Context, header: RequestHeader, request: AlterUserScramCredentialsRequest) -> Body:
    """Answer AlterUserScramCredentials: each user that can be altered is, in one transaction."""
    edits: dict[str, Edit] = {}
    outcomes: dict[str, tuple[ErrorCode, str | None]] = {}
    removed, put = defaultdict(list), defaultdict(list)
    for deletion in request.deletions:
        removed[deletion.name].append(deletion)
    for upsertion in request.upsertions:
        put[upsertion.name].append(upsertion)
    for name in _named(request):
        try:
            edits[name] = _edit(context, name, removed[name], put[name])
            outcomes[name] = ErrorCode.NONE, None
        except Refused as refused:
            outcomes[name] = refused.code, refused.message
    if edits:
        async with context.store.pool.connection() as connection:
            missing = await store.alter(connection, edits, str(context.session.principal))
        outcomes |= dict.fromkeys(missing, (ErrorCode.RESOURCE_NOT_FOUND, "there is no such credential"))
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlteredScramUser(user=name, error_code=code, error_message=why) for name, (code, why) in outcomes.items()
        )
    )


def _named(request: AlterUserScramCredentialsRequest) -> dict[str, None]:
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    return dict.fromkeys(names)


def _edit(context: Context, name: str, removed: Sequence[ScramDeletion], put: Sequence[ScramUpsertion]) -> Edit:
    if name in context.options.users:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, _CONFIGURED)
    if not name or len(name.encode()) > _MOST_NAME_BYTES or _CONTROL.search(name):
        text = f"a name has 1 to {_MOST_NAME_BYTES} bytes and no control characters"
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    mechanisms = [each.mechanism for each in removed] + [each.mechanism for each in put]
    if not set(mechanisms) <= _MECHANISMS.keys():
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"the mechanisms are {', '.join(_NUMBERS)}")
    if len(set(mechanisms)) < len(mechanisms):
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, "a mechanism is named more than once")
    return Edit([_MECHANISMS[each.mechanism] for each in removed], [_keys(each) for each in put])


def _keys(put: ScramUpsertion) -> Keys:
    mechanism = _MECHANISMS[put.mechanism]
    if not LEAST_ITERATIONS <= put.iterations <= MOST_ITERATIONS:
        text = f"iterations are from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    if not 1 <= len(put.salt) <= _MOST_SALT_BYTES or len(put.salted_password) != _SALTED_BYTES[mechanism]:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password has a wrong length")
    return Keys.from_salted(mechanism, bytes(put.salt), put.iterations, bytes(put.salted_password))


def _altering_failed(request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None) -> Body:
    results = (AlteredScramUser(user=name, error_code=code, error_message=message) for name in _named(request))
    return AlterUserScramCredentialsResponse(results=tuple(results))


HANDLERS: Handlers = {
    DescribeUserScramCredentialsRequest: describe_users,
    AlterUserScramCredentialsRequest: alter_users,
}
FAILURES: Failures = {AlterUserScramCredentialsRequest: _altering_failed}
