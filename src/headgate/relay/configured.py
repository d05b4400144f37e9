"""A relay's settings from the configuration file."""

from __future__ import annotations

from pathlib import Path

from headgate.config.relay import RelaySection
from headgate.eventlog import LogOptions
from headgate.eventlog.fanout import FanOutOptions
from headgate.relay.options import RelayOptions
from headgate.relay.service import RelaySettings
from headgate.relay.verdict import LENIENT, STRICT

__all__ = ["settings_from"]


def settings_from(section: RelaySection, directory: Path) -> RelaySettings:
    """What `[relay]` says; its files are in `directory` unless it names another."""
    return RelaySettings(
        data_dir=(section.data_dir or directory).absolute(),
        host=section.host,
        port=section.port,
        store=section.store.get_secret_value() if section.store else "",
        admin_token=section.token.get_secret_value() if section.token else None,
        crawl=section.crawl,
        bootstrap=section.bootstrap,
        options=RelayOptions(
            policy=LENIENT if section.policy == "lenient" else STRICT,
            workers=section.workers,
            plc_url=section.plc_url,
            trusted_domains=section.trusted_domains,
            backlog=section.backlog,
            allow_private=section.allow_private,
        ),
        log=LogOptions(max_age_s=section.retention, max_bytes=section.max_log_bytes),
        fanout=FanOutOptions(
            any_origin=True,
            connections=section.max_connections,
            per_address=section.max_per_address,
            proxies=section.proxies,
            buffer=section.max_buffer,
        ),
    )
