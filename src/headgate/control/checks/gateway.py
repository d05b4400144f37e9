"""Checks of the gateway: can it listen, and does the address that clients are told lead anywhere?"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from headgate.config.gateway import GatewaySection
from headgate.control.checks.verdict import Check, Outcome
from headgate.model import OccupiedError
from headgate.runtime.listening import listen

__all__ = ["check_gateway"]


def check_gateway(section: GatewaySection) -> Iterator[Check]:
    """Its port and its advertised address; nothing if it is not enabled."""
    if not section.enabled:
        return
    for host in section.hosts:
        yield _port(host, section.port)
    advertised = section.advertised_address
    if advertised is not None:
        yield _name(*advertised)


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
