"""How webhooks are signed; a source checks what a destination makes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from headgate.config.base import Duration, SecretText, Section
from headgate.wire.webhook import Signing

__all__ = ["WebhookSecret", "WebhookSignatureSection", "signing_of"]


def _long_enough(secret: SecretStr) -> SecretStr:
    """An environment variable that happens to be empty must not open the door."""
    if len(secret.get_secret_value()) < 8:
        raise ValueError("a secret has at least 8 characters")
    return secret


WebhookSecret = Annotated[SecretText, AfterValidator(_long_enough)]


class WebhookSignatureSection(Section):
    """HMAC-SHA-256 over the body; `stripe` and `standard` also sign the time."""

    scheme: Literal["github", "stripe", "standard"] = Field(
        description="`github`: X-Hub-Signature-256; `stripe`: Stripe-Signature; `standard`: Standard Webhooks."
    )
    secrets: tuple[WebhookSecret, ...] = Field(
        min_length=1, description="Any of them is good, so that one can replace another."
    )
    header: str = Field("", pattern=r"^[A-Za-z0-9-]{0,100}$", description="Another header for the signature.")
    tolerance: Duration = Field(300.0, gt=0, description="How old a signature that carries its time may be.")


def signing_of(section: WebhookSignatureSection | None) -> Signing | None:
    """Return how requests are signed or checked; None if they are not."""
    if section is None:
        return None
    secrets = tuple(secret.get_secret_value() for secret in section.secrets)
    return Signing(section.scheme, secrets, section.header, section.tolerance)
