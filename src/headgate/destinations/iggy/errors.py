"""What the Iggy SDK says, as headgate errors with a remedy. It tells its errors apart by their text alone."""

from __future__ import annotations

from headgate.model import AuthError, CapacityError, ConnectError, DataError, DeliveryError, HeadgateError, StateError

__all__ = ["iggy_error"]

_SERVER = "check the address, and that the server runs and speaks the SDK's version of the protocol"

# Parts of texts in lower case -> error class and remedy; the first that fits.
_TEXTS: tuple[tuple[str, type[HeadgateError], str], ...] = (
    ("unauthenticated", AuthError, "set user and password, or token"),
    ("unauthorized", AuthError, "grant the user the rights to create and write streams and topics"),
    ("credentials", AuthError, "check user and password, or token"),
    ("username", AuthError, "check user and password, or token"),
    ("password", AuthError, "check user and password, or token"),
    ("access token", AuthError, "issue a new personal access token"),
    ("disconnected", ConnectError, _SERVER),
    ("not connected", ConnectError, _SERVER),
    ("connection", ConnectError, _SERVER),
    ("tcp error", ConnectError, _SERVER),
    ("stale client", ConnectError, _SERVER),
    ("shutdown", ConnectError, _SERVER),
    ("timed out", ConnectError, _SERVER),
    ("not found", StateError, "create the stream and the topic, or correct their names"),
    ("too big", DataError, "shorten the payload, or raise the server's limit"),
    ("too large", DataError, "shorten the payload, or raise the server's limit"),
    ("payload", DataError, "Iggy takes payloads of at least one byte, up to the server's limit"),
    ("full", CapacityError, "raise the topic's size, or let messages expire"),
    ("no space", CapacityError, "free disk space on the server"),
)


def iggy_error(error: BaseException, where: str) -> HeadgateError:
    """The headgate error for one of the SDK's, or for its silence."""
    if isinstance(error, TimeoutError):
        return ConnectError("Iggy does not answer", where=where, remedy=_SERVER)
    text = str(error)
    for part, cls, remedy in _TEXTS:
        if part in text.lower():
            return cls(f"Iggy: {text}", where=where, remedy=remedy)
    return DeliveryError(f"Iggy: {text}", where=where, remedy="look the error up in the server's log")
