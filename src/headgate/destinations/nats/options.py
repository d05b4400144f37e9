"""How to reach a NATS server and what the stream behind it should be."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from headgate.model import ConfigError, DataError
from headgate.wire.nats import check_subject

__all__ = ["NatsOptions", "Server", "check_stream_name"]

_DEFAULT_PORT = 4222
_STREAM_NAME = re.compile(r"[!-~]{1,255}")
_FORBIDDEN_IN_NAMES = frozenset('.*>/\\"')


@dataclass(frozen=True, slots=True)
class Server:
    """One address of the list in `url`, with the credentials that stood in it."""

    host: str
    port: int
    tls: bool = False
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions:
    """Connection, stream and publishing settings. Immutable, picklable, and usable as a cache key.

    A limit that is None is left as it is in a stream that is there. A new stream has none, and remembers message ids
    for two minutes.

    `discard` is `new` unless said otherwise: at a limit the stream refuses further messages, the pipeline reports a
    full stream and the source keeps the rows. `old` drops messages that were already acknowledged.

    `window` is the number of messages on their way at a time. Four thousand keep a server of the same network busy;
    raise it for one that is many milliseconds away. All publishers of a stream share the server's queue for it, which
    holds 100,000 messages (10,000 in old versions); beyond that the server refuses.
    """

    stream: str
    subjects: tuple[str, ...]
    url: str = field(default="nats://127.0.0.1:4222", repr=False)
    storage: Literal["file", "memory"] = "file"
    replicas: int = 1
    duplicate_window_s: float | None = None
    max_age_s: float | None = None  # 0: for ever
    max_bytes: int | None = None  # -1: no limit
    max_msgs: int | None = None
    discard: Literal["new", "old"] | None = None
    window: int = 4_000
    window_bytes: int = 16 * 1024 * 1024
    ack_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    domain: str = ""
    inbox_prefix: str = "_INBOX"
    client_name: str = "headgate"
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey_seed: str = field(default="", repr=False)
    creds_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_first: bool = False

    def __post_init__(self) -> None:
        check_stream_name(self.stream)
        for subject in (*self.subjects, self.inbox_prefix):
            _check_subject(subject)
        _require(bool(self.subjects), "subjects", "name at least one subject, such as 'cdc.>'")
        _require("*" not in self.inbox_prefix and ">" not in self.inbox_prefix, "inbox_prefix", "no wildcards")
        _require(1 <= self.replicas <= 5, "replicas", "from 1 to 5")
        _require(1 <= self.window <= 1_000_000, "window", "from 1 to 1000000")
        _require(self.window_bytes > 0, "window_bytes", "must be positive")
        _require(self.ack_timeout_s > 0, "ack_timeout_s", "must be positive")
        _require(self.connect_timeout_s > 0, "connect_timeout_s", "must be positive")
        _require((self.duplicate_window_s or 0) >= 0, "duplicate_window_s", "must not be negative")
        _require((self.max_age_s or 0) >= 0, "max_age_s", "must not be negative; 0 keeps messages for ever")
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_cert", "tls_cert and tls_key go together")
        self._check_choices()
        self.servers()

    def __repr__(self) -> str:
        shown = [f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr]
        return f"NatsOptions(url={self.address!r}, {', '.join(shown)})"

    @property
    def address(self) -> str:
        """The servers without credentials, for messages and logs."""
        return ",".join(map(str, self.servers()))

    def servers(self) -> tuple[Server, ...]:
        """The addresses of `url` in the order in which they are tried."""
        servers = tuple(_parse_server(part.strip()) for part in self.url.split(",") if part.strip())
        _require(bool(servers), "url", "name at least one server, such as nats://127.0.0.1:4222")
        return servers

    def _check_choices(self) -> None:
        choices = {"storage": ("file", "memory"), "discard": ("new", "old", None)}
        for name, allowed in choices.items():
            _require(getattr(self, name) in allowed, name, f"one of {', '.join(filter(None, allowed))}")


def check_stream_name(name: str) -> str:
    """A stream name becomes a directory name and a subject token (ADR-6)."""
    if not _STREAM_NAME.fullmatch(name) or _FORBIDDEN_IN_NAMES & set(name):
        raise ConfigError(
            f"not a name for a stream: {name[:80]!r}",
            where="stream",
            remedy="use printable ASCII without . * > / \\ and quotes, at most 255 characters",
        )
    return name


def _check_subject(subject: str) -> None:
    try:
        check_subject(subject)
    except DataError as error:
        raise ConfigError(
            error.message, where="subjects", remedy="tokens separated by dots, * and > as wildcards"
        ) from None


def _require(condition: bool, name: str, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"invalid NATS option {name}", where=name, remedy=remedy)


def _parse_server(text: str) -> Server:
    parts = urlsplit(text if "://" in text else f"nats://{text}")
    _require(parts.scheme in ("nats", "tls"), "url", "use nats://host:port or tls://host:port")
    _require(bool(parts.hostname), "url", "an address lacks its host; use nats://host:port")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    # As in other NATS clients, user information without a colon is a token.
    token, user = (user, "") if user and parts.password is None else ("", user)
    return Server(parts.hostname or "", _port(parts), parts.scheme == "tls", user, password, token)


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or _DEFAULT_PORT
    except ValueError:
        raise ConfigError("invalid NATS option url", where="url", remedy="the port must be 1 to 65535") from None
