"""Certificates of a gateway: loaded, loaded anew when their files change, and those that clients show."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from pathlib import Path

from headgate.gateway.health import Health
from headgate.gateway.options import GatewayOptions
from headgate.model import ConfigError, ProtocolError
from headgate.wire.x509 import common_name, distinguished_name, read_subject

__all__ = ["CERTIFICATE", "Certificates", "client_name", "make_context"]

logger = logging.getLogger(__name__)

CERTIFICATE = "TLS"  # the mechanism of a login by certificate
_PART = "certificates"
_LOOK_S = 2.0
_MOST_NAME_BYTES = 1024
_VERIFY = {"none": ssl.CERT_NONE, "request": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """The TLS context for connections that begin. Those that there are keep the one they began with."""

    def __init__(self, options: GatewayOptions, health: Health) -> None:
        """Raises ConfigError if the files cannot be used."""
        self._options = options
        self._health = health
        self._asked = asyncio.Event()
        self._stamp = _stamp(options)
        self.context = make_context(options)

    def look_again(self) -> None:
        """Load the files at once, whether or not they seem to have changed."""
        self._asked.set()

    async def watch(self) -> None:
        """Load the files whenever they have changed, for ever. While they cannot be used the old ones are."""
        while True:
            is_asked = False
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    is_asked = await self._asked.wait()
            self._asked.clear()
            stamp = await asyncio.to_thread(_stamp, self._options)
            if stamp != self._stamp or is_asked or self._health.failing_s(_PART):
                await self._load(stamp)

    async def _load(self, stamp: _Stamp) -> None:
        try:
            context = await asyncio.to_thread(make_context, self._options)
        except ConfigError as error:
            if not self._health.failing_s(_PART):
                logger.error("the old certificate stays in use", extra={"why": str(error)})
            self._health.failed(_PART, f"{error}; the old one stays in use")
        else:
            self.context, self._stamp = context, stamp
            self._health.works(_PART)
            logger.info("certificates loaded anew", extra={"file": str(self._options.tls_cert)})


def make_context(options: GatewayOptions) -> ssl.SSLContext:
    """Return a context with the files as they are now. Raises ConfigError."""
    assert options.tls_cert is not None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the certificate cannot be used: {error}",
            where="gateway.tls_cert",
            remedy="set tls_cert and tls_key to a PEM certificate and the key that belongs to it",
        ) from None
    if options.tls_client_auth != "none":
        _trust(context, options.tls_client_ca)
        context.verify_mode = _VERIFY[options.tls_client_auth]
        context.num_tickets = 0  # each connection shows its certificate again
        context.options |= ssl.OP_NO_TICKET
    return context


def _trust(context: ssl.SSLContext, file: Path | None) -> None:
    try:
        context.load_verify_locations(file)
    except (OSError, TypeError) as error:
        raise ConfigError(
            f"the certificates of clients cannot be checked: {error}",
            where="gateway.tls_client_ca",
            remedy="set tls_client_ca to a PEM file with the certificates of those who sign your clients' certificates",
        ) from None


def client_name(transport: asyncio.BaseTransport, form: str) -> str | None:
    """Return whom the client's certificate names; None if it has shown none. Raises ProtocolError."""
    tls = transport.get_extra_info("ssl_object")
    certificate = tls.getpeercert(binary_form=True) if tls else None
    if certificate is None:
        return None
    subject = read_subject(certificate)
    name = common_name(subject) if form == "CN" else distinguished_name(subject)
    if not name or len(name.encode()) > _MOST_NAME_BYTES or not name.isprintable():
        raise ProtocolError(
            "the certificate names nobody: it needs one subject, of which the name is not too long",
            remedy=f"Use a certificate whose {'common name' if form == 'CN' else 'subject'} is the client's name.",
        )
    return name


def _stamp(options: GatewayOptions) -> _Stamp:
    """What differs when a file was written anew or replaced."""
    return tuple(map(_file_stamp, (options.tls_cert, options.tls_key, options.tls_client_ca)))


def _file_stamp(file: Path | None) -> tuple[int, int, int] | None:
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
