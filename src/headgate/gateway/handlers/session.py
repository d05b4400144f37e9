"""How a connection begins: ApiVersions, SaslHandshake, SaslAuthenticate."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Container, Sequence
from typing import Any

from headgate.gateway.context import Context, Failures, Handler, Handlers
from headgate.gateway.login import Dialogue
from headgate.gateway.outage import NO_DATABASE
from headgate.wire.kafka import APIS, Api, Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.produce import PRODUCE
from headgate.wire.kafka.messages.session import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    SupportedFeature,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS", "first_offered", "offering", "versions_refused"]

logger = logging.getLogger(__name__)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_TRY_AGAIN = "the gateway cannot look the user up at this moment; try again"

# librdkafka stops compressing if Produce is not offered from version 0 on, though it then uses a newer one.
_FIRST_OFFERED = {PRODUCE.key: 0}
# Offered from version 0 on, which older librdkafkas ask for; they use 1. After version 0 the mechanism's messages would
# have no request header, which no client has needed since 2017.
_FIRST_HANDSHAKE = 1
# The second protocol of transactions (KIP-890). Clients that know it choose it by this, all others use the first.
_TRANSACTIONS, _FIRST_PROTOCOL, _SECOND_PROTOCOL = "transaction.version", 1, 2
_SUPPORTED = (SupportedFeature(_TRANSACTIONS, _FIRST_PROTOCOL, _SECOND_PROTOCOL),)
_FINALIZED = (FinalizedFeature(_TRANSACTIONS, _SECOND_PROTOCOL, _SECOND_PROTOCOL),)


def first_offered(api: Api[Any, Any]) -> int:
    """The first version that ApiVersions names."""
    return _FIRST_OFFERED.get(api.key, api.first)


def offering(apis: Sequence[Api[Any, Any]]) -> Handler:
    """The handler of ApiVersions that offers these, and itself."""

    async def api_versions(context: Context, header: RequestHeader, request: ApiVersionsRequest) -> Body:
        if header.api_version >= 3 and not (
            _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.client_software = f"{request.client_software_name} {request.client_software_version}".strip()
        return ApiVersionsResponse(
            api_keys=_offers(apis),
            supported_features=_SUPPORTED,
            finalized_features_epoch=0,
            finalized_features=_FINALIZED,
        )

    return api_versions


def versions_refused(served: Container[type[Body]]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that is not known: the client asks again with one that is."""
    apis = [api for api in APIS.values() if api.request in served]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_offers(apis))


def _offers(apis: Sequence[Api[Any, Any]]) -> tuple[ApiVersion, ...]:
    return tuple(ApiVersion(api_key=api.key, min_version=first_offered(api), max_version=api.last) for api in apis)


async def sasl_handshake(context: Context, header: RequestHeader, request: SaslHandshakeRequest) -> Body:
    """Choose a mechanism."""
    session, mechanisms = context.session, context.services.logins.mechanisms
    if header.api_version < _FIRST_HANDSHAKE or not _may_begin(context, request.mechanism):
        session.is_closing = True
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        session.dialogue = context.services.logins.begin(request.mechanism, session.address)
        session.mechanism = request.mechanism
    except Refused as refused:
        session.is_closing = True
        context.audit.login_failed(session, "unknown", refused.message, client_id=header.client_id)
        return SaslHandshakeResponse(error_code=refused.code, mechanisms=mechanisms)
    return SaslHandshakeResponse(mechanisms=mechanisms)


def _may_begin(context: Context, mechanism: str) -> bool:
    """Whether a login may begin: the first, or one more of a login that does not count for ever (KIP-368)."""
    session = context.session
    if not context.options.knows_clients or session.is_proving:
        return False
    if session.user is None or session.has_certificate:  # a login with a password replaces that by certificate
        return True
    return session.expires_at is not None and mechanism == session.mechanism


async def sasl_authenticate(context: Context, header: RequestHeader, request: SaslAuthenticateRequest) -> Body:
    """One message of the mechanism. A connection has one try."""
    session = context.session
    dialogue, session.dialogue = session.dialogue, None
    if dialogue is None:
        session.is_closing = True
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="choose a mechanism with SaslHandshake first"
        )
    began = asyncio.get_running_loop().time()
    session.is_proving = True  # another message may come at the same time, and must not find it
    try:
        answer = await dialogue.step(request.auth_bytes)
        lifetime_ms = _finish(context, dialogue, header)
    except Refused as refused:
        session.is_closing = True
        who, client_id = dialogue.claimed, header.client_id
        context.audit.login_failed(session, session.mechanism, refused.message, user=who, client_id=client_id)
        # From the beginning: how long it took tells nobody which names there are.
        wait_s = context.services.logins.patience.failed(session.address)
        await asyncio.sleep(began + wait_s - asyncio.get_running_loop().time())
        return SaslAuthenticateResponse(error_code=refused.code, error_message=refused.message)
    except NO_DATABASE as outage:
        session.is_closing = True
        logger.warning("no login without PostgreSQL", extra={"peer": session.peer, "why": str(outage) or repr(outage)})
        return SaslAuthenticateResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=_TRY_AGAIN)
    finally:
        session.is_proving = False
    return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)


def _finish(context: Context, dialogue: Dialogue, header: RequestHeader) -> int:
    """Let the client in if it has shown who it is; returns for how many milliseconds that counts, 0 for ever."""
    session, user = context.session, dialogue.user
    if user is None:
        session.dialogue = dialogue
        return 0
    if session.user not in (None, user) and not session.has_certificate:
        raise Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, "who logs in again must be the same user as before")
    is_again = session.user is not None and not session.has_certificate
    session.has_certificate = False
    lifetimes = [each for each in (context.options.max_reauth_s, dialogue.lifetime_s) if each is not None]
    session.user, session.credential = user, (user, dialogue.mechanism) if dialogue.mechanism else None
    session.expires_at = asyncio.get_running_loop().time() + min(lifetimes) if lifetimes else None
    context.audit.logged_in(session, session.mechanism, client_id=header.client_id, again=is_again)
    return max(int(min(lifetimes) * 1000), 1) if lifetimes else 0


HANDLERS: Handlers = {SaslHandshakeRequest: sasl_handshake, SaslAuthenticateRequest: sasl_authenticate}
FAILURES: Failures = {}
