"""Is the NATS server there, does it have JetStream, and is there room?"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.control.checks.verdict import Check, Outcome, failed
from headgate.destinations.nats import JetStream, NatsDestination, NatsOptions
from headgate.destinations.nats.streams import changes, drift_error, drifts
from headgate.model import HeadgateError, Kind

__all__ = ["check_nats", "check_stream"]

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


def check_stream(destination: NatsDestination) -> Iterator[Check]:
    """The stream of a destination: there, as wanted, and free for our subjects?"""
    options, subject = destination.options, f"stream {destination.options.stream}"
    try:
        with JetStream.open(options) as jetstream:
            info = jetstream.stream_info(options.stream)
            payload = jetstream.account().max_payload
            taken = {other for wanted in options.subjects for other in jetstream.stream_names(wanted)}
    except HeadgateError as error:
        yield failed(subject, error)
        return
    others = sorted(taken - {options.stream})
    if others:
        fix = f"nats stream edit {others[0]} --subjects ... # or other subjects for this destination"
        found = f"{', '.join(others)} takes {', '.join(options.subjects)} already"
        yield Check(subject, Outcome.FAIL, found, fix, Kind.CONFIG)
    if info is None:
        yield Check(subject, Outcome.OK, "there is none yet; it is created at the first start")
        return
    wrong = list(drifts(info, options, exclusive=destination.exclusive, max_payload=payload))
    if wrong:
        yield failed(subject, drift_error(info, wrong))
        return
    wanted = changes(info, options, exclusive=destination.exclusive)
    found = f"{info.messages:,} messages, {info.bytes / 1e6:,.1f} MB"
    if wanted:
        found += f"; the next start changes {', '.join(sorted(wanted))}"
    yield Check(subject, Outcome.OK, found)


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
