"""The state file: which batch is known to be delivered.

Spark's own commit log is written later, so after a crash or a stop Spark may hand out a finished batch again.
The state file decides: what it covers is never sent twice. It is replaced atomically (temporary file, fsync,
rename, fsync of the directory), so that a crash leaves the old or the new version and nothing in between.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headgate.model import CapacityError, StateError
from headgate.runtime.disk import disk_error
from headgate.runtime.files import replace_file

__all__ = ["State", "StateFile"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class State:
    """What a pipeline remembers between runs."""

    pipeline: str
    source: str  # which source the offsets belong to
    query_id: str  # which checkpoint the batch numbers belong to
    batch_id: int = -1
    rows: int = 0
    end: dict[str, Any] | None = None  # delivered up to here, where a batch came further than it was planned to

    def covers(self, batch_id: int) -> bool:
        return batch_id <= self.batch_id


class StateFile:
    """Reads and writes one pipeline's state."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> State | None:
        """The saved state, or None when there is none. A file that makes no sense is an error, never a reset."""
        try:
            fields = json.loads(self.path.read_text(encoding="utf-8"))
            version = fields.pop("version")
            if version != _VERSION:
                raise StateError(
                    f"the state has version {version}, this headgate reads version {_VERSION}",
                    where=str(self.path),
                    remedy="run the headgate version that wrote it, or start anew with: headgate reset PIPELINE",
                )
            return State(**fields)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error(error, str(self.path)) or error from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StateError(
                f"the state file cannot be read: {error}",
                where=str(self.path),
                remedy="restore it from a backup, or start anew with: headgate reset PIPELINE",
            ) from None

    def write(self, state: State) -> None:
        data = json.dumps({"version": _VERSION, **asdict(state)}).encode()
        try:
            replace_file(self.path, data)
        except OSError as error:
            raise CapacityError(
                f"the state cannot be written: {error.strerror}",
                where=str(self.path),
                remedy="free disk space or make the data directory writable; the batch is tried again",
            ) from error
