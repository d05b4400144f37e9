"""From the configuration to a `shadow` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext, revealed
from headgate.destinations.shadow.destination import ShadowDestination
from headgate.destinations.shadow.section import ShadowDestinationSection
from headgate.shadow.cluster import Cluster

__all__ = ["build", "cluster_of"]


def build(section: ShadowDestinationSection, context: DestinationContext) -> ShadowDestination:
    return ShadowDestination(
        context.name,
        context.database(section.url),
        cluster_of(section),
        topic_prefix=section.topic_prefix,
        percent=section.percent,
        replicas=section.replicas,
        groups=section.groups,
        group_interval_s=section.group_interval,
    )


def cluster_of(section: ShadowDestinationSection) -> Cluster:
    """Return the cluster that a table is about."""
    return Cluster(
        servers=section.servers,
        security_protocol=section.security_protocol,
        sasl_mechanism=section.sasl_mechanism or "",
        user=section.user or "",
        password=revealed(section.password),
        tls_ca=str(section.tls_ca or ""),
        tls_cert=str(section.tls_cert or ""),
        tls_key=str(section.tls_key or ""),
        settings=tuple((key, value.get_secret_value()) for key, value in section.settings.items()),
        timeout_s=section.timeout,
    )
