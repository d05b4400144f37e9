"""`headgate.toml`: models, loading, and errors that name the key, the line and the fix.

The tables of sources and destinations are declared in their own packages, which need `config.base` and nothing else of
this one. So its names are imported when they are asked for: whoever imports such a package first meets no circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.config.explain import InvalidConfigError, Problem
    from headgate.config.loading import DEFAULT_FILE, load, parse
    from headgate.config.models import Config
else:
    __getattr__ = lazily(
        __name__,
        InvalidConfigError="explain",
        Problem="explain",
        DEFAULT_FILE="loading",
        load="loading",
        parse="loading",
        Config="models",
    )

__all__ = ["DEFAULT_FILE", "Config", "InvalidConfigError", "Problem", "load", "parse"]
