"""What NATS and JetStream say, as headgate errors with a remedy.

Three vocabularies end here: the texts of `-ERR`, the numbered errors of the JetStream API, and the status codes that
the server puts into headers (503 means that nobody listens on a subject).
"""

from __future__ import annotations

from headgate.model import (
    AuthError,
    CapacityError,
    ConfigError,
    ConnectError,
    DataError,
    DeliveryError,
    DependencyError,
    HeadgateError,
    InternalError,
    ProtocolError,
    StateError,
)
from headgate.wire.nats import ApiError

__all__ = ["NO_RESPONDERS", "api_error", "no_stream_error", "server_error", "stream_gone_error"]

NO_RESPONDERS = 503

_FULL = "raise the stream's limits, delete or consume messages, or free disk space; delivery then continues"
_ENABLE = "start nats-server with JetStream (nats-server -js -sd DIR) and enable it for the account"
_WRITER = "another writer appended to the stream; stop it, or restart the pipeline so that it reads the last position"
_LATER = "the server is busy or electing a leader; delivery is tried again"

# err_code of the JetStream API -> error class and remedy.
_API_ERRORS: dict[int, tuple[type[HeadgateError], str]] = {
    10002: (CapacityError, _FULL),  # resource limits exceeded for account
    10003: (InternalError, "report this with the nats-server version"),  # bad request
    10005: (CapacityError, "fewer servers than replicas are up; start them or lower `replicas`"),  # no suitable peers
    10008: (ConnectError, _LATER),  # JetStream system temporarily unavailable
    10009: (ConnectError, _LATER),  # not leader
    10023: (CapacityError, _FULL),  # insufficient resources
    10025: (InternalError, "report this with the nats-server version"),  # invalid JSON
    10026: (CapacityError, "raise the account's consumer limit"),
    10027: (CapacityError, "raise the account's stream limit or delete unused streams"),
    10028: (CapacityError, _FULL),  # insufficient memory
    10035: (AuthError, "the account does not exist on this server"),
    10037: (StateError, "the message does not exist (any more)"),
    10039: (DependencyError, _ENABLE),  # not enabled for account
    10047: (CapacityError, _FULL),  # insufficient storage
    10052: (ConfigError, "correct the stream options"),  # invalid stream configuration
    10054: (DataError, "raise the stream's max_msg_size or shorten the payload"),
    10058: (StateError, "a stream of this name exists with other settings; compare with `nats stream info`"),
    10059: (StateError, "create the stream, or correct its name"),
    10060: (StateError, "the subject belongs to another stream; correct the topics or the stream's subjects"),
    10065: (ConfigError, "another stream already takes these subjects; choose others or remove them there"),
    10070: (StateError, _WRITER),  # wrong last msg id
    10071: (StateError, _WRITER),  # wrong last sequence
    10074: (ConfigError, "one server cannot keep replicas; set replicas = 1 or build a cluster"),
    10076: (DependencyError, _ENABLE),  # JetStream not enabled
    10077: (CapacityError, _FULL),  # maximum messages / bytes exceeded, no space left
    10097: (DataError, "shorten the message id or the headers"),  # header over 64 KiB
    10109: (StateError, "the stream is sealed; write to another one"),
    10113: (ConfigError, "the account demands a limit; set max_bytes"),
    10122: (ConfigError, "the account limits the size of a stream; lower max_bytes"),
    10158: (DeliveryError, _LATER),  # the same message id is being stored right now
    10163: (DeliveryError, _LATER),  # expected last sequence per subject temporarily unavailable
    10164: (StateError, _WRITER),  # wrong last sequence
    10167: (CapacityError, "lower `window`, or the number of parallel publishers"),  # too many requests
}

# Lower-case beginnings of `-ERR` texts -> error class and remedy.
_SERVER_ERRORS: tuple[tuple[str, type[HeadgateError], str], ...] = (
    ("authorization violation", AuthError, "check user, password, token, nkey or creds_file"),
    ("authentication timeout", ConnectError, "the server or the network is slow; the connection is tried again"),
    ("user authentication", AuthError, "the user's credentials expired or were revoked; issue new ones"),
    ("account authentication", AuthError, "the account's credentials expired; issue new ones"),
    ("permissions violation", AuthError, "grant the user publish rights on the subjects and subscribe on the inbox"),
    ("secure connection", AuthError, "the server demands TLS; use tls:// or set tls_ca"),
    ("maximum connections", CapacityError, "raise max_connections of the server, or use fewer publishers"),
    ("maximum account", CapacityError, "raise the account's connection limit, or use fewer publishers"),
    ("maximum payload", DataError, "raise max_payload of the server or shorten the payload"),
    ("slow consumer", ConnectError, "the server dropped us as too slow; the connection is opened again"),
    ("stale connection", ConnectError, "the connection is opened again"),
    ("server shutdown", ConnectError, "the server stopped; the connection is tried again"),
    ("connection throttling", ConnectError, "the connection is tried again"),
    ("maximum subscriptions", CapacityError, "raise the user's subscription limit"),
)


def api_error(error: ApiError, where: str) -> HeadgateError:
    """The headgate error for an error of the JetStream API."""
    text = f"JetStream: {error.description or 'refused'} ({error.err_code or error.code})"
    if error.err_code in _API_ERRORS:
        cls, remedy = _API_ERRORS[error.err_code]
        return cls(text, remedy=remedy, where=where)
    if error.code in (408, 429, 503):
        return DeliveryError(text, remedy=_LATER, where=where)
    if error.code == 404:
        return StateError(text, remedy="check the names of the stream and the subject", where=where)
    return DeliveryError(text, remedy="look the error up in the server's log", where=where)


def no_stream_error(subject: str, where: str) -> HeadgateError:
    """Return the error for a subject without a stream: no stream takes it, or JetStream is off."""
    return StateError(
        f"no stream takes the subject {subject[:200]!r}",
        remedy="add the subject to the stream, or correct the topic of the route; check that JetStream is enabled",
        where=where,
    )


def stream_gone_error(stream: str) -> HeadgateError:
    """The destination's own stream is not there any more; tried again, since every new run makes it anew."""
    return DeliveryError(
        f"the stream {stream} was deleted while it was written",
        remedy="it is made again by itself; what it held is gone, so give its consumers new snapshots",
        where=f"stream {stream}",
    )


def server_error(text: str, where: str) -> HeadgateError:
    """The headgate error for `-ERR 'text'`."""
    lowered = text.lower()
    for beginning, cls, remedy in _SERVER_ERRORS:
        if lowered.startswith(beginning):
            return cls(f"NATS: {text}", remedy=remedy, where=where)
    return ProtocolError(f"NATS: {text}", remedy="look the error up in the server's log", where=where)
