"""Checks of the gateway: can it listen, whom does it let in, and does the address that it advertises lead anywhere?"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from headgate.config.gateway import GatewaySection
from headgate.control.checks.verdict import Check, Outcome
from headgate.gateway.configured import options_from
from headgate.gateway.tls import make_context
from headgate.model import ConfigError, OccupiedError
from headgate.runtime.listening import listen

__all__ = ["check_gateway"]


def check_gateway(section: GatewaySection) -> Iterator[Check]:
    """Its port, its advertised address, who is let in, and its certificate; nothing if it is not enabled."""
    if not section.enabled:
        return
    for host in section.hosts:
        yield _port(host, section.port)
    advertised = section.advertised_address
    if advertised is not None:
        yield _name(*advertised)
    if section.public_hosts and section.is_open:
        fix = "remove allow_anonymous, and make users: see headgate gateway users"
        yield Check("gateway access", Outcome.WARN, "anybody who can reach it may read and write everything", fix)
    if section.tls_cert is not None:
        yield _certificate(section)


def _port(host: str, port: int) -> Check:
    try:
        listen(host, port, backlog=1, where="gateway.port").close()
    except OccupiedError as error:
        return Check(
            "gateway port", Outcome.WARN, str(error), f"unless it is headgate that runs already: {error.remedy}"
        )
    return Check("gateway port", Outcome.OK, f"{host}:{port} is free")


def _name(host: str, port: int) -> Check:
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        fix = "set gateway.advertised to a name or address that clients can reach"
        return Check("gateway advertised", Outcome.WARN, f"{host} cannot be resolved here: {error}", fix)
    return Check("gateway advertised", Outcome.OK, f"clients are told {host}:{port}")


def _certificate(section: GatewaySection) -> Check:
    try:
        make_context(options_from(section, ""))
    except ConfigError as error:
        return Check("gateway certificate", Outcome.FAIL, error.message, error.remedy)
    return Check("gateway certificate", Outcome.OK, f"{section.tls_cert} can be used")
