"""Begins a pipeline anew: forgets what it delivered, and has its rows get ids that no earlier row had.

A destination recognises a replay by message ids, or by the number of a batch. If rows that are numbered anew got the
ids of other rows, they would be dropped as delivered; so the number of resets is part of a source's origin, of the
numbers of batches and of the checkpoint's place, and survives each of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from headgate.model import CapacityError, StateError
from headgate.model.position import renewed_origin
from headgate.runtime.files import replace_file
from headgate.sources.postgres_cdc.control import SpoolControl

__all__ = ["checkpoint_of", "reset_pipeline", "resets_of"]

_RESETS = "resets"
_PLANS = ("poll", "files")  # what was decided of batches that are forgotten
_CHECKPOINT = "checkpoint"


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


def checkpoint_of(pipeline: str, directory: Path, base: str | None, resets: int) -> str:
    """Where Spark keeps its checkpoint: after a reset in another place, as we may be unable to remove the old one."""
    if base:
        return f"{base.rstrip('/')}/{renewed_origin(pipeline, resets)}"
    return (directory / renewed_origin(_CHECKPOINT, resets)).as_uri()


def reset_pipeline(directory: Path, *, keeps_spool: bool) -> None:
    """Forget state, checkpoint and plans. Counted first, so that a crash half way leaves no old id to be given again.

    Dead letters stay, and so does what only we have: `keeps_spool` is for sources whose spool is not theirs to lose.
    """
    replace_file(directory / _RESETS, b"%d" % (resets_of(directory) + 1))
    (directory / "state.json").unlink(missing_ok=True)
    for forgotten in (*(directory / name for name in _PLANS), *directory.glob(f"{_CHECKPOINT}*")):
        _remove(forgotten)
    if not keeps_spool:
        SpoolControl(directory / "spool").forget()


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CapacityError(
            f"the reset is not complete: cannot remove {error.filename or directory}: {error.strerror}",
            where=str(directory),
            remedy="make it removable for this user, then reset again",
        ) from None
