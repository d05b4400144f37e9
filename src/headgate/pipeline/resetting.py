"""Begins a pipeline anew: forgets what it delivered, and has its rows get ids that no earlier row had.

A destination recognises a replay by message ids. If rows that are numbered anew got the ids of other rows, they would
be dropped as delivered; so the number of resets is part of a source's origin, and survives each of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from headgate.model import StateError
from headgate.model.files import replace_file
from headgate.sources.postgres_cdc.control import SpoolControl

__all__ = ["reset_pipeline", "resets_of"]

_RESETS = "resets"
_PLANS = ("checkpoint", "poll", "files")  # what was decided of batches that are forgotten


def resets_of(directory: Path) -> int:
    """How often a pipeline was begun anew."""
    try:
        return int((directory / _RESETS).read_text())
    except FileNotFoundError:
        return 0
    except ValueError:
        raise StateError(
            "the number of resets cannot be read",
            where=str(directory / _RESETS),
            remedy="write a number there that is higher than the resets so far",
        ) from None


def reset_pipeline(directory: Path, *, keeps_spool: bool) -> None:
    """Forget state, checkpoint and plans. Counted first, so that a crash half way leaves no old id to be given again.

    Dead letters stay, and so does what only we have: `keeps_spool` is for sources whose spool is not theirs to lose.
    """
    replace_file(directory / _RESETS, b"%d" % (resets_of(directory) + 1))
    (directory / "state.json").unlink(missing_ok=True)
    for name in _PLANS:
        shutil.rmtree(directory / name, ignore_errors=True)
    if not keeps_spool:
        SpoolControl(directory / "spool").forget()
