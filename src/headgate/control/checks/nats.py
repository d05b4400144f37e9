"""Is the NATS server there, does it have JetStream, and is there room?"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.control.checks.verdict import Check, Outcome, failed
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.model import HeadgateError

__all__ = ["check_nats"]

_PAYLOAD_WANTED_BYTES = 1 << 20
_LITTLE_LEFT_BYTES = 256 << 20


def check_nats(options: NatsOptions) -> Iterator[Check]:
    """Connect and look; whatever is wrong is one failed check, not an exception."""
    try:
        with JetStream.open(options) as jetstream:
            yield Check("nats connection", Outcome.OK, options.address)
            account = jetstream.account()
            yield Check("nats jetstream", Outcome.OK, f"enabled, {account.streams} streams")
            yield _payload(account.max_payload)
            yield _storage(account.storage_left_bytes)
    except HeadgateError as error:
        yield failed("nats", error)


def _payload(limit: int) -> Check:
    found = f"{limit:,} bytes"
    if limit >= _PAYLOAD_WANTED_BYTES:
        return Check("nats max_payload", Outcome.OK, found)
    return Check("nats max_payload", Outcome.WARN, found, "set max_payload: 1MB in the server's configuration")


def _storage(left: int | None) -> Check:
    if left is None:
        return Check("nats storage", Outcome.OK, "no limit for this account")
    found = f"{left / 1e6:,.0f} MB left"
    if left > _LITTLE_LEFT_BYTES:
        return Check("nats storage", Outcome.OK, found)
    return Check("nats storage", Outcome.WARN, found, "raise max_file_store of JetStream, or the account's disk limit")
