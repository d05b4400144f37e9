"""A registry's options from the configuration file."""

from __future__ import annotations

from headgate.config.registry import RegistrySection
from headgate.registry.options import RegistryOptions

__all__ = ["registry_options"]


def registry_options(section: RegistrySection, postgres_url: str) -> RegistryOptions:
    """Return what `[registry]` says; the database is that of `[postgres]` unless there is another one."""
    return RegistryOptions(
        postgres_url=section.url.get_secret_value() if section.url else postgres_url,
        host=section.host,
        port=section.port,
        users={name: password.get_secret_value() for name, password in section.users.items()},
        tls_cert=section.tls_cert,
        tls_key=section.tls_key,
        max_connections=section.max_connections,
    )
