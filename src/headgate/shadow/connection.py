"""One connection to a broker: blocking, with requests that need not wait for the answers of those before them."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

from headgate.model import AuthError, ConnectError, HeadgateError, ProtocolError
from headgate.shadow.cluster import Cluster
from headgate.shadow.errors import kafka_error
from headgate.wire.kafka.api import Api
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.exchange import decode_response, encode_request
from headgate.wire.kafka.frames import FrameSplitter
from headgate.wire.kafka.login import login_steps
from headgate.wire.kafka.messages.session import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from headgate.wire.kafka.schema import Body

__all__ = ["Connection"]

_Q = TypeVar("_Q", bound=Body)
_A = TypeVar("_A", bound=Body)
_CLIENT = "headgate-shadow"
_CHUNK_BYTES = 256 * 1024
_MAX_ANSWER_BYTES = 256 << 20  # a batch may be 100 MB, and comes whole


class Connection:
    """A connection that is logged in. After an error it is of no more use: close it."""

    def __init__(self, cluster: Cluster, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._next_id = 0
        self._waiting: deque[tuple[Api[Any, Any], int, int]] = deque()  # in the order of their answers
        self._splitter = FrameSplitter(max_bytes=_MAX_ANSWER_BYTES)
        self._frames: deque[bytes] = deque()
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._socket = self._opened(cluster, host, port)
        try:
            self._versions = self._offered()
            if cluster.has_login:
                self._log_in(cluster)
        except BaseException:
            self.close()
            raise

    def _opened(self, cluster: Cluster, host: str, port: int) -> socket.socket:
        context = cluster.tls_context()
        try:
            plain = socket.create_connection((host, port), cluster.timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(cluster.timeout_s * 2)  # the broker itself may take as long as it is told
            return context.wrap_socket(plain, server_hostname=host) if context else plain
        except ssl.SSLError as error:
            raise AuthError(
                f"no TLS with the broker: {error.reason or error}",
                where=self.address,
                remedy="check security_protocol, tls_ca, and the names in the brokers' certificates",
            ) from None
        except OSError as error:
            raise self._unreachable(error) from None

    def version(self, api: Api[Any, Any], most: int = 32767) -> int:
        """Return the newest version of an API that both sides know; raises `ConfigError` if there is none."""
        first, last = self._versions.get(api.key, (0, -1))
        version = min(last, api.last, most)
        if version < max(first, api.first):
            raise kafka_error(ErrorCode.UNSUPPORTED_VERSION, self.address, f"no version of {api.name} in common")
        return version

    def call(self, api: Api[_Q, _A], request: _Q, version: int | None = None) -> _A:
        """Send a request and return its answer. No other may be under way."""
        assert not self._waiting
        self.post(api, request, version)
        answer: _A = self.take()
        return answer

    def post(self, api: Api[_Q, Any], request: _Q, version: int | None = None) -> None:
        """Send a request whose answer `take` returns later."""
        chosen = self.version(api) if version is None else version
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        buffers = encode_request(api, chosen, self._next_id, _CLIENT, request)
        self._waiting.append((api, chosen, self._next_id))
        try:
            self._socket.sendall(b"".join(buffers))
        except OSError as error:
            raise self._unreachable(error) from None

    def take(self) -> Any:
        """Wait for the answer to the oldest request that has none."""
        api, version, expected = self._waiting.popleft()
        correlation_id, answer = decode_response(api, version, self._frame())
        if correlation_id != expected:
            raise ProtocolError(
                f"an answer to request {correlation_id} instead of {expected}",
                where=self.address,
                remedy="check that the address is a Kafka broker's",
            )
        return answer

    def _frame(self) -> bytes:
        while not self._frames:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except OSError as error:
                raise self._unreachable(error) from None
            if not data:
                raise ConnectError(
                    "the broker has closed the connection",
                    where=self.address,
                    remedy="look into its log; a port that speaks TLS or asks for a login does so, too",
                )
            self._splitter.feed(data)
            self._frames.extend(self._splitter.frames())
        return self._frames.popleft()

    def close(self) -> None:
        self._socket.close()

    def _offered(self) -> dict[int, tuple[int, int]]:
        """The versions that the broker has. One that does not know our question answers in the oldest form."""
        answer: ApiVersionsResponse
        for version in (3, 0):
            self.post(API_VERSIONS, ApiVersionsRequest(_CLIENT, "1"), version)
            api, _, expected = self._waiting.popleft()
            frame = self._frame()
            try:
                correlation_id, body = decode_response(api, version, frame)
            except ProtocolError:
                correlation_id, body = decode_response(api, 0, frame)
            assert isinstance(body, ApiVersionsResponse)
            answer = body
            if correlation_id != expected:
                raise ProtocolError("no answer of Kafka's", where=self.address, remedy="check servers")
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        if answer.error_code:
            raise kafka_error(answer.error_code, self.address)
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _log_in(self, cluster: Cluster) -> None:
        handshake = self.call(SASL_HANDSHAKE, SaslHandshakeRequest(cluster.sasl_mechanism))
        if handshake.error_code:
            offered = f"the broker offers {', '.join(handshake.mechanisms)}"
            raise kafka_error(handshake.error_code, self.address, offered)
        steps = login_steps(cluster.sasl_mechanism, cluster.user, cluster.password, secrets.token_urlsafe(24))
        message = next(steps)
        while True:
            answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(message))
            if answer.error_code:
                raise kafka_error(answer.error_code, self.address, answer.error_message)
            try:
                message = steps.send(answer.auth_bytes)
            except StopIteration:
                return
            except AuthError as error:
                raise error.at(self.address) from None

    def _unreachable(self, error: OSError) -> HeadgateError:
        what = "no answer in time" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        return ConnectError(
            f"Kafka: {what}",
            where=self.address,
            remedy="check servers, and that the brokers run and can be reached under the names they advertise",
        )
