"""Whole requests and responses: a frame's header and its body together.

A request begins with API key, version, correlation id and client id; a response with the correlation id. From the first
flexible version on, tagged fields follow both. One exception (KIP-511): the header of an ApiVersions response never has
them, because a client must read it before it knows what the server speaks.

Specification: Apache Kafka protocol guide, "Common Request and Response Structure"; KIP-482 and KIP-511.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from headgate.model import ProtocolError
from headgate.wire.kafka.api import Api
from headgate.wire.kafka.apis import APIS, find_api
from headgate.wire.kafka.decode import skip_tags
from headgate.wire.kafka.encode import Buffers, string
from headgate.wire.kafka.frames import framed
from headgate.wire.kafka.messages.session import API_VERSIONS
from headgate.wire.kafka.primitives import REMEDY, read_string
from headgate.wire.kafka.schema import Body

__all__ = [
    "Request",
    "RequestHeader",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "read_request_header",
]

_HEADER = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")
_NO_TAGS = b"\0"


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """What a request begins with; `body_start` is where its body lies in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int

    @property
    def api(self) -> Api[Any, Any] | None:
        """The API, if it is known in this version."""
        return find_api(self.api_key, self.api_version)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was read."""

    header: RequestHeader
    body: Body


def read_request_header(frame: bytes) -> RequestHeader:
    """The header, also of an API or version that is not known: the server may want to answer it.

    The place of the body is a guess then. Bytes that are no header raise `ProtocolError`.
    """
    try:
        key, version, correlation_id = _HEADER.unpack_from(frame)
        client_id, position = read_string(frame, _HEADER.size)
        api = find_api(key, version)
        if api and api.is_flexible(version):
            position = skip_tags(frame, position, [])
    except ProtocolError as error:
        raise error.at("request header") from None
    except (IndexError, struct.error):
        raise ProtocolError("the header ends too early", remedy=REMEDY, where="request header") from None
    except UnicodeDecodeError:
        raise ProtocolError("the client id is not UTF-8", remedy=REMEDY, where="request header") from None
    return RequestHeader(key, version, correlation_id, client_id, position)


def decode_request(frame: bytes) -> Request:
    """A request with its header; one that is not known raises `ProtocolError`, as do bytes that are none."""
    header = read_request_header(frame)
    api = APIS.get(header.api_key)
    if api is None:
        raise ProtocolError(
            f"no API has the key {header.api_key}", remedy="Use the APIs that ApiVersions offers.", where="request"
        )
    return Request(header, api.decode_request(frame, header.api_version, header.body_start))


def encode_request(
    api: Api[Any, Any], version: int, correlation_id: int, client_id: str | None, request: Body
) -> Buffers:
    """A request as one frame."""
    body = api.encode_request(request, version)
    header = _HEADER.pack(api.key, version, correlation_id) + string(client_id)
    return framed([header + _NO_TAGS if api.is_flexible(version) else header, *body])


def encode_response(header: RequestHeader, response: Body) -> Buffers:
    """The answer to a request as one frame, for `writelines`.

    A request of an unknown ApiVersions version is answered with version 0, as every client expects (KIP-511).
    """
    api = header.api
    if api is None and header.api_key == API_VERSIONS.key:
        return framed([_CORRELATION_ID.pack(header.correlation_id), *API_VERSIONS.encode_response(response, 0)])  # type: ignore[arg-type]
    if api is None:
        raise ProtocolError(
            f"no answer can be written for API {header.api_key} v{header.api_version}",
            remedy="Close the connection instead.",
        )
    body = api.encode_response(response, header.api_version)
    return framed([_response_header(api, header.api_version, header.correlation_id), *body])


def decode_response(api: Api[Any, Any], version: int, frame: bytes) -> tuple[int, Body]:
    """A response's correlation id and body; a client knows from the correlation id what it had asked."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        position = _CORRELATION_ID.size
        if _has_response_tags(api, version):
            position = skip_tags(frame, position, [])
    except ProtocolError as error:
        raise error.at("response header") from None
    except (IndexError, struct.error):
        raise ProtocolError("the header ends too early", remedy=REMEDY, where="response header") from None
    return correlation_id, api.decode_response(frame, version, position)


def _response_header(api: Api[Any, Any], version: int, correlation_id: int) -> bytes:
    correlation = _CORRELATION_ID.pack(correlation_id)
    return correlation + _NO_TAGS if _has_response_tags(api, version) else correlation


def _has_response_tags(api: Api[Any, Any], version: int) -> bool:
    return api.is_flexible(version) and api.key != API_VERSIONS.key
