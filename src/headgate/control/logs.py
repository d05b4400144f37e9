"""Structured logs on standard error: logfmt for people, JSON for machines."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal, TextIO

import structlog

from headgate.control.folding import FoldingFilter

__all__ = ["configure_logs"]

_QUIET = ("py4j", "uvicorn", "asyncio", "httpx", "picows")


def configure_logs(level: str, style: Literal["logfmt", "json"], stream: TextIO | None = None) -> None:
    """Send every `logging` record of the process through one renderer."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(style))
    handler.addFilter(FoldingFilter(handler))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL if name == "py4j" else logging.WARNING)


def _formatter(style: Literal["logfmt", "json"]) -> logging.Formatter:
    renderer: Any = structlog.processors.JSONRenderer()
    if style == "logfmt":
        renderer = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.ExtraAdder(),
            _flatten,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            renderer,
        ],
    )


def _flatten(_logger: object, _method: str, event: Any) -> Any:
    """`error={"kind": ...}` becomes `error_kind=...`, which logfmt can carry and people can read."""
    for key, value in list(event.items()):
        if isinstance(value, dict) and not key.startswith("_"):
            del event[key]
            event.update({f"{key}_{inner}": item for inner, item in value.items()})
    return event
