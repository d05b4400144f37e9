"""What webhook senders and receivers must agree on: signatures."""

from __future__ import annotations

from headgate.wire.webhook.signature import SCHEMES, Scheme, Signing

__all__ = ["SCHEMES", "Scheme", "Signing"]
