"""Where pipelines keep what they must remember."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.config import Config

__all__ = ["pipeline_dir"]


def pipeline_dir(config: Config, pipeline: str) -> Path:
    """Return the directory of a pipeline's state, and by default of its checkpoint."""
    return config.project.data_dir / "pipelines" / pipeline
