"""From the configuration to an `iggy` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext, revealed
from headgate.destinations.iggy.destination import IggyDestination
from headgate.destinations.iggy.options import IggyOptions
from headgate.destinations.iggy.section import IggyDestinationSection

__all__ = ["build"]


def build(section: IggyDestinationSection, context: DestinationContext) -> IggyDestination:
    options = IggyOptions(
        server=section.server,
        stream=section.stream,
        mode=section.mode,
        user=section.user or "",
        password=revealed(section.password),
        token=revealed(section.token),
        tls=section.tls,
        tls_domain=section.tls_domain or "",
        tls_ca=str(section.tls_ca or ""),
        max_rows_per_request=section.max_rows_per_request,
        connect_timeout_s=section.connect_timeout,
        send_timeout_s=section.send_timeout,
    )
    return IggyDestination(context.name, options)
