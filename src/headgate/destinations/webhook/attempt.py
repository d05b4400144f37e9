"""One attempt to send a request, and what its outcome means: done, try again, or give up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from headgate.destinations.webhook.options import WebhookOptions
from headgate.destinations.webhook.requests import Post
from headgate.model import ConnectError, DeliveryError, HeadgateError

__all__ = ["Outcome", "attempt"]

_SHOWN = 200  # characters of an answer
_MOST_READ = 64 * 1024  # of an answer, so that its connection can be used again
_PASSING = frozenset([408, 425, 429])
_REMEDIES = {
    401: "correct the key in headers, or the secret of the signature",
    403: "correct the key in headers, or the secret of the signature",
    404: "correct url; is the path right for this topic?",
    405: "correct url: the receiver does not take POST there",
    413: "lower batch_rows or max_batch_bytes, or raise the receiver's limit",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt. Without an error, the receiver has it."""

    error: HeadgateError | None = None
    passing: bool = False  # it may be better in a moment
    retry_after_s: float | None = None


async def attempt(
    client: httpx.AsyncClient, options: WebhookOptions, url: str, post: Post, headers: Mapping[str, str]
) -> Outcome:
    """Send it once, within the time limit."""
    signed = (
        options.signing.sign(post.body, message_id=post.message_id, now_s=int(time.time())) if options.signing else {}
    )
    response: httpx.Response | None = None
    shown = ""
    try:
        async with asyncio.timeout(options.timeout_s):
            async with client.stream("POST", url, content=post.body, headers={**headers, **signed}) as response:
                shown = await _beginning(response)
    except TimeoutError:
        if response is None:
            return Outcome(_late(options), passing=True)
    except (httpx.ConnectError, httpx.ConnectTimeout) as failure:
        return Outcome(_away(options, failure))
    except httpx.HTTPError as failure:  # it broke off, or spoke something else than HTTP
        if response is not None:
            return _judge(options, response, shown)  # the status has been said
        error = DeliveryError(
            f"the connection broke: {type(failure).__name__}", where=options.address, remedy="it is tried again"
        )
        return Outcome(error, passing=True)
    return _judge(options, response, shown)


def _late(options: WebhookOptions) -> DeliveryError:
    return DeliveryError(
        f"no answer within {options.timeout_s:g} s",
        where=options.address,
        remedy="raise timeout, or see why the receiver takes so long",
    )


def _away(options: WebhookOptions, failure: httpx.HTTPError) -> ConnectError:
    return ConnectError(
        f"cannot connect: {failure}"[:300],
        where=options.address,
        remedy="start the receiver, or correct url; it is tried again",
    )


def _judge(options: WebhookOptions, response: httpx.Response, shown: str) -> Outcome:
    status = response.status_code
    if 200 <= status < 300:
        return Outcome()
    if 300 <= status < 400:
        message, remedy = f"status {status}: a redirect, and those are not followed", "set url to where it leads"
    else:
        message, remedy = f"status {status}: {shown}", _REMEDIES.get(status, "see what the receiver says of it")
    error = DeliveryError(message, where=options.address, remedy=remedy)
    passing = status in _PASSING or status >= 500
    return Outcome(error, passing, _retry_after(response.headers.get("retry-after", "")) if passing else None)


async def _beginning(response: httpx.Response) -> str:
    """The first characters of an answer. A long one is not read to its end: the connection is given up instead."""
    data = bytearray()
    async for part in response.aiter_raw():
        data += part[:_MOST_READ]
        if len(data) >= _MOST_READ:
            break
    text = data[: _SHOWN * 4].decode("utf-8", "replace")[:_SHOWN]
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _retry_after(text: str) -> float | None:
    """Seconds, or a date (RFC 9110 section 10.2.3)."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
