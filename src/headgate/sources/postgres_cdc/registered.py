"""Schemas of Debezium's messages in a schema registry, under the names that consumers look for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError, StateError
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.wire.envelope import HEARTBEAT_PREFIX, framed, json_schema
from headgate.wire.envelope.subject import fill_subject
from headgate.wire.pgoutput import Relation

__all__ = ["RegisteredFrame"]

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 10.0
_MOST_REMEMBERED = 4096
_MOST_TOLD = 300  # of what a registry says, in an error
_INCOMPATIBLE = 409
_FAILED = 500


@dataclass(frozen=True, slots=True)
class RegisteredFrame:
    """Registers the schemas of a source, and frames its messages with their ids."""

    url: str = field(repr=False)  # may have a password in it
    topic: str  # of a table, as the source names it
    heartbeat_topic: str

    @classmethod
    def of(cls, options: CdcOptions) -> RegisteredFrame:
        """Return the frame that the options of a source ask for."""
        return cls(options.schema_registry, options.subject, options.debezium_options.heartbeat_topic)

    def __call__(self, schema: dict[str, Any], of: Relation | str, /, *, is_key: bool) -> bytes:
        """Return what stands before each key or value of a schema. Raise an error of its kind if there is no id."""
        subject = f"{self._topic_of(of)}-{'key' if is_key else 'value'}"
        return framed(_schema_id(self.url, subject, json_schema(schema)))

    def _topic_of(self, of: Relation | str) -> str:
        if of == HEARTBEAT_PREFIX:
            return self.heartbeat_topic
        names = ("message", of) if isinstance(of, str) else (of.schema, of.name)
        return fill_subject(self.topic, *names, "message")


@lru_cache(_MOST_REMEMBERED)  # a shape is looked at once for every range that is decoded
def _schema_id(url: str, subject: str, text: str) -> int:
    """Return the id of a schema under a subject, which the registry gives it unless it has one."""
    try:
        address = httpx.URL(url)
        answer = httpx.post(
            # The client writes the addresses that it asks into its log, so no password may be in them.
            f"{str(address.copy_with(userinfo=b'')).rstrip('/')}/subjects/{quote(subject, safe='')}/versions",
            auth=(address.username, address.password) if address.userinfo else None,
            content=msgspec.json.encode({"schemaType": "JSON", "schema": text}),
            headers={"Content-Type": _CONTENT_TYPE},
            timeout=_TIMEOUT_S,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectError(
            f"the schema registry does not answer: {type(error).__name__}",
            where="schema_registry",
            remedy="check the address, and that it runs",
        ) from None
    if not answer.is_success:
        raise _refusal(answer, subject)
    try:
        return msgspec.json.decode(answer.content, type=_Registered).id
    except msgspec.MsgspecError:
        raise ConfigError(
            f"what answers for {subject} is not a schema registry",
            where="schema_registry",
            remedy="check the address",
        ) from None


class _Registered(msgspec.Struct):
    id: int


def _refusal(answer: httpx.Response, subject: str) -> HeadgateError:
    """Return the error that a registry's refusal is."""
    told, where = f"{answer.status_code}: {answer.text[:_MOST_TOLD]}", "schema_registry"
    if answer.status_code in (401, 403):
        remedy = "write user and password into the address: http://USER:PASSWORD@HOST:PORT"
        return AuthError(f"the schema registry lets nobody in: {answer.status_code}", where=where, remedy=remedy)
    if answer.status_code == _INCOMPATIBLE:
        remedy = f"look whether consumers can take it; if so, set the compatibility of {subject} to NONE"
        return StateError(f"the schema registry refuses the new shape of {subject}: {told}", where=where, remedy=remedy)
    if answer.status_code >= _FAILED:
        return ConnectError(f"the schema registry failed: {told}", where=where, remedy="look at its log")
    return ConfigError(f"the schema registry refuses {subject}: {told}", where=where, remedy="check the address")
