"""A relay's settings from the configuration file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate.config.relay import RelayLimits, RelaySection
from headgate.eventlog import LogOptions
from headgate.eventlog.fanout import FanOutOptions
from headgate.relay.options import HoldLimits, RelayOptions
from headgate.relay.service import RelaySettings
from headgate.relay.verdict import LENIENT, STRICT, Mode, Policy

__all__ = ["settings_from"]


def _policy(section: RelaySection) -> Policy:
    modes = {name: Mode(mode) for name, mode in section.rules.model_dump().items() if mode is not None}
    return replace(LENIENT if section.policy == "lenient" else STRICT, **modes)


def _limits(limits: RelayLimits) -> dict[str, Any]:
    """The limits under the names that they have inside."""
    given = limits.model_dump()
    hold = HoldLimits(**{name: given.pop(name) for name in ("host_events", "host_bytes", "events", "bytes")})
    backoff_s = given.pop("first_backoff"), given.pop("longest_backoff")
    durations = ("hold", "dormant_retry", "stale_cursor", "idle_timeout", "save_cursors")
    named = {f"{name}_s": given.pop(name) for name in durations}
    return {**given, **named, "hold": hold, "backoff_s": backoff_s}


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
        siblings=section.siblings,
        options=RelayOptions(
            **_limits(section.limits),
            policy=_policy(section),
            workers=section.workers,
            plc_url=section.plc_url,
            trusted_domains=section.trusted_domains,
            backlog=section.backlog,
            allow_private=section.allow_private,
        ),
        log=LogOptions(max_age_s=section.retention, max_bytes=section.max_log_bytes, first_seq=section.initial_seq),
        fanout=FanOutOptions(
            any_origin=True,
            connections=section.max_connections,
            per_address=section.max_per_address,
            proxies=section.proxies,
            buffer=section.max_buffer,
        ),
    )
