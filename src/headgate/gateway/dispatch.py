"""From a request to its answer: the handler is called, and whatever it raises becomes an answer too."""

from __future__ import annotations

import logging
from functools import cache

from headgate.gateway.audited import changes_of
from headgate.gateway.context import Context
from headgate.gateway.handlers import FAILURES, HANDLERS
from headgate.gateway.outage import NO_DATABASE
from headgate.gateway.throttle import throttled
from headgate.model import HeadgateError, ProtocolError
from headgate.wire.kafka import Api, Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused
from headgate.wire.kafka.schema import fields_of

__all__ = ["failed", "respond"]

logger = logging.getLogger(__name__)


async def respond(context: Context, header: RequestHeader, request: Body) -> Body | None:
    """The answer to a request, or nothing if it wants none. Raises `ProtocolError` if no answer can be given."""
    response = await throttled(context, header, request, _respond(context, header, request))
    if changes := changes_of(request, response):
        assert header.api is not None
        context.audit.changed(context.session, header.api.name, changes, header.client_id)
    return response


async def _respond(context: Context, header: RequestHeader, request: Body) -> Body | None:
    api = header.api
    assert api is not None
    error = ErrorCode.NONE
    context = Context(context.services, context.session, api.name)
    try:
        await context.access.check_request(request, header.api_version)
        return await HANDLERS[type(request)](context, header, request)
    except Refused as refused:
        error = refused.code
        return failed(api, header.api_version, request, error, refused.message)
    except NO_DATABASE as outage:
        logger.warning("no answer from PostgreSQL", extra={"api": api.name, "why": str(outage)})
        error = ErrorCode.REQUEST_TIMED_OUT  # clients try again
        return failed(api, header.api_version, request, error, "the database does not answer")
    except Exception as fault:
        text = fault.to_text() if isinstance(fault, HeadgateError) else repr(fault)
        logger.exception("a handler failed", extra={"api": api.name, "version": header.api_version, "why": text})
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        return failed(api, header.api_version, request, error, "the gateway failed; its log says why")
    finally:
        context.metrics.requests[api.name, error.name] += 1


def failed(api: Api[Body, Body], version: int, request: Body, code: ErrorCode, message: str | None) -> Body:
    """The answer that says that a request failed as a whole."""
    if failure := FAILURES.get(type(request)):
        return failure(request, code, message)
    if _has_error_code(api.response, version):
        return api.response(error_code=code)
    raise ProtocolError(
        f"{api.name} v{version} cannot say {code.name}", remedy="The client connects again and asks once more."
    )


@cache
def _has_error_code(response: type[Body], version: int) -> bool:
    return any(field.name == "error_code" and field.exists(version) for field in fields_of(response))
