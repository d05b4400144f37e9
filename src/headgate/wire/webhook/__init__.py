"""What webhook senders and receivers must agree on: signatures, and what a request may consist of."""

from __future__ import annotations

from headgate.wire.webhook.request import address_of, check_header, split_url
from headgate.wire.webhook.signature import SCHEMES, Scheme, Signing

__all__ = ["SCHEMES", "Scheme", "Signing", "address_of", "check_header", "split_url"]
