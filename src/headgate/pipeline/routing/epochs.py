"""The version of a pipeline's routes. It rises when they change, and only then, whether by a reload or by a restart."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

from headgate.model import CapacityError, StateError
from headgate.pipeline.routing.rules import Rules
from headgate.runtime.files import replace_file

__all__ = ["EpochFile"]


class EpochFile:
    """Remembers the last epoch and what its routes were."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def number(self, rules: Rules) -> Rules:
        """The rules with their epoch, which is durable before a row is sent by them."""
        digest = _digest(rules)
        known = self._read()
        if known is not None and known[1] == digest:
            return replace(rules, epoch=known[0])
        epoch = known[0] + 1 if known else 1
        try:
            replace_file(self._path, json.dumps({"epoch": epoch, "routes": digest}).encode())
        except OSError as error:
            raise CapacityError(
                f"the epoch of the routes cannot be written: {error.strerror}",
                where=str(self._path),
                remedy="free disk space or make the data directory writable",
            ) from None
        return replace(rules, epoch=epoch)

    def _read(self) -> tuple[int, str] | None:
        try:
            fields = json.loads(self._path.read_bytes())
            return int(fields["epoch"]), str(fields["routes"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the epoch of the routes cannot be read: {error}",
                where=str(self._path),
                remedy='restore the file, or write {"epoch": N, "routes": ""} with a number that was not used yet',
            ) from None


def _digest(rules: Rules) -> str:
    """Hash the routes: equal ones give the same, in any process."""
    text = json.dumps(asdict(replace(rules, epoch=0)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
