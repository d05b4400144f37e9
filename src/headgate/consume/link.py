"""A connection to NATS that outlives its server, and the few questions a consumer asks JetStream.

Every question is asked until it is answered: while the server is away or JetStream is still starting, with growing
pauses and one warning in the log.

Reading goes through nats-py and publishing through our own connection, each by measure: the parser of nats-py takes 3
to 4 us of CPU for a message of 200 bytes with a header, ours 11 to 15, while publishing needs a window of
acknowledgements that nats-py does not have.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg

from headgate.model import AuthError, ConfigError, ConnectError
from headgate.runtime.backoff import Backoff

__all__ = ["Link", "StreamState"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_MISSING_S = 1.0  # between two looks for a stream that is away
_PAUSES_S = (0.05, 2.0)  # the first, and the longest
_PASSING = (
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.OutboundBufferLimitError,
    nats.js.errors.ServiceUnavailableError,
    nats.js.errors.NoStreamResponseError,
)


class StreamState(NamedTuple):
    """What a stream holds now; empty when `last` is less than `first`.

    `created` tells it from another one of its name. `deleted_count` are messages that are gone from between the two.
    """

    first: int
    last: int
    created: str = ""
    deleted_count: int = 0
    subjects: tuple[str, ...] = ()


class Link:
    """One connection. Close it in the end."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.jetstream: JetStreamContext = client.jetstream(timeout=5)
        self.reconnects = 0
        self.is_closing = False

    @classmethod
    async def open(cls, url: str, *, name: str, credentials: str | None = None) -> Link:
        """The first connection must come about; after that it is made again for ever."""
        link: Link | None = None

        async def lost() -> None:
            if link is not None and not link.is_closing:
                logger.warning("lost the connection to NATS; trying again until it is back")

        async def back() -> None:
            logger.info("connected to NATS again")
            if link is not None:
                link.reconnects += 1

        async def failed(error: Exception) -> None:
            logger.debug("NATS: %s", error)

        client = Client()
        try:
            await client.connect(
                url, name=name, connect_timeout=5, max_reconnect_attempts=1, allow_reconnect=False, error_cb=failed,
                disconnected_cb=lost, reconnected_cb=back, user_credentials=credentials, ping_interval=20,
            )  # fmt: skip
        except (TimeoutError, OSError, nats.errors.Error) as error:
            await client.close()
            raise _refused(error) from None
        client.options |= {"allow_reconnect": True, "max_reconnect_attempts": -1, "reconnect_time_wait": 0.5}
        link = cls(client)
        return link

    async def close(self) -> None:
        self.is_closing = True
        try:
            await self.client.close()
        except OSError:  # the server has gone with something unsent: nats-py stops half way, its socket open
            transport = getattr(self.client, "_transport", None)
            if transport is not None:
                transport.close()

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer, however long it takes. What JetStream refuses is raised."""
        backoff = Backoff(*_PAUSES_S)
        while True:
            try:
                return await question()
            except _PASSING as error:
                if backoff.failures == 2:
                    logger.warning("no answer from JetStream (%s); asking until there is one", type(error).__name__)
                await asyncio.sleep(backoff.next_s())

    async def state(self, stream: str) -> StreamState:
        info = await self._info(stream)
        state = info["state"]
        return StreamState(
            state["first_seq"],
            state["last_seq"],
            info.get("created", ""),
            state.get("num_deleted", 0),
            tuple(info["config"].get("subjects") or ()),
        )

    async def state_when_back(self, stream: str) -> StreamState:
        """What `state` gives, however long the stream is missing: whoever deleted it may make it again."""
        said = False
        while True:
            try:
                return await self.state(stream)
            except ConfigError as error:
                if not said:
                    logger.warning("%s; waiting until it is there again", error.message)
                said = True
                await asyncio.sleep(_MISSING_S)

    async def deleted(self, stream: str) -> list[int]:
        """Sequences between the first and the last that are gone, ascending."""
        found = (await self._info(stream, deleted_details=True))["state"].get("deleted") or []
        return sorted(found)

    async def _info(self, stream: str, **body: Any) -> dict[str, Any]:
        """Not through the client's own, which rounds the time of creation."""

        async def question() -> dict[str, Any]:
            reply = await self.client.request(
                f"$JS.API.STREAM.INFO.{stream}", json.dumps(body).encode() if body else b"", timeout=5
            )
            answer: dict[str, Any] = json.loads(reply.data)
            if "error" in answer:
                nats.js.errors.APIError.from_error(answer["error"])  # raises
            return answer

        try:
            return await self.ask(question)
        except nats.js.errors.NotFoundError:
            raise ConfigError(
                f"there is no stream {stream}", remedy="start the bridge, or name its stream", where="nats"
            ) from None

    async def subjects(self, stream: str, pattern: str) -> dict[str, int]:
        """Subjects that match, with the number of messages on each."""
        try:
            info = await self.ask(lambda: self.jetstream.stream_info(stream, subjects_filter=pattern))
        except nats.js.errors.NotFoundError:
            return {}
        return info.state.subjects or {}

    async def last_on(self, stream: str, subject: str) -> RawStreamMsg | None:
        """The last message on a subject, which may have wildcards."""
        return await self._get(lambda: self.jetstream.get_last_msg(stream, subject))

    async def at(self, stream: str, sequence: int) -> RawStreamMsg | None:
        return await self._get(lambda: self.jetstream.get_msg(stream, sequence)) if sequence > 0 else None

    async def next_on(self, stream: str, subject: str, sequence: int) -> int | None:
        """Where the first message on a subject stands, from a sequence on; asked of the stream's leader."""
        found = await self._get(lambda: self.jetstream.get_msg(stream, sequence, subject=subject, next=True))
        return None if found is None else found.seq

    async def value(self, bucket: str, key: str) -> bytes | None:
        """The value of a key. Not through the client's own KV, which refuses keys with escaped characters."""
        message = await self.last_on(f"KV_{bucket}", f"$KV.{bucket}.{key}")
        if message is None or "KV-Operation" in (message.headers or {}):
            return None
        return message.data or b""

    async def _get(self, question: Callable[[], Awaitable[RawStreamMsg]]) -> RawStreamMsg | None:
        try:
            return await self.ask(question)
        except nats.js.errors.NotFoundError:
            return None


def _refused(error: Exception) -> ConnectError | AuthError:
    if isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower():
        return AuthError("NATS refused the credentials", where="nats", remedy="check user and password in the URL")
    return ConnectError(
        f"cannot reach NATS: {type(error).__name__}", where="nats", remedy="is the server running? check --nats"
    )
