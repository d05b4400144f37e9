"""How a connection begins: ApiVersions, SaslHandshake, SaslAuthenticate."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Container, Sequence
from typing import Any

from headgate.gateway.context import Context, Failures, Handler, Handlers
from headgate.gateway.sasl import MECHANISMS
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

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_WRONG_PASSWORD_DELAY_S = 0.2  # with one try a connection, this slows guessing down

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
    if header.api_version < _FIRST_HANDSHAKE or not context.options.is_guarded or context.session.user:
        context.session.is_closing = True
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        context.session.dialogue = context.services.users.begin(request.mechanism)
        context.session.mechanism = request.mechanism
    except Refused as refused:
        context.session.is_closing = True
        return SaslHandshakeResponse(error_code=refused.code, mechanisms=MECHANISMS)
    return SaslHandshakeResponse(mechanisms=MECHANISMS)


async def sasl_authenticate(context: Context, header: RequestHeader, request: SaslAuthenticateRequest) -> Body:
    """One message of the mechanism. A connection has one try."""
    session = context.session
    dialogue = session.dialogue
    if dialogue is None:
        session.is_closing = True
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="choose a mechanism with SaslHandshake first"
        )
    try:
        answer = dialogue.step(request.auth_bytes)
    except Refused as refused:
        session.dialogue, session.is_closing = None, True
        context.audit.login_failed(session, session.mechanism, refused.message, client_id=header.client_id)
        await asyncio.sleep(_WRONG_PASSWORD_DELAY_S)
        return SaslAuthenticateResponse(error_code=refused.code, error_message=refused.message)
    if dialogue.user is not None:
        session.user, session.dialogue = dialogue.user, None
        context.audit.logged_in(session, session.mechanism, client_id=header.client_id)
    return SaslAuthenticateResponse(error_message=None, auth_bytes=answer)


HANDLERS: Handlers = {SaslHandshakeRequest: sasl_handshake, SaslAuthenticateRequest: sasl_authenticate}
FAILURES: Failures = {}
