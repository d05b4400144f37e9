"""Which files make up a batch: the record that makes a batch visible as a whole, and how it comes about.

    _staging/{batch}/...      what senders write
    _batches/{batch}.intent   which files are being moved to where readers look
    _batches/{batch}.json     the batch is complete, and consists of these files
    stream=.../topic=.../     where readers look; without the first level where no row can have a stream

Each step can be repeated. A crash before the manifest leaves an intent, by which the next attempt finds the files it
must remove; a crash after it leaves only things to clear away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headgate.destinations.table.files import Files
from headgate.destinations.table.names import partition_dir
from headgate.model import StateError
from headgate.runtime.failpoints import failpoint

__all__ = ["BATCHES", "STAGING", "Part", "complete_batch", "completed_parts"]

BATCHES = "_batches"
STAGING = "_staging"

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Part:
    """One file that a sender wrote: the rows of one topic in one lane."""

    staged: str  # where it was written, relative to the table
    stream: str | None
    topic: str
    task: int
    rows: int
    file_bytes: int
    first_id: str  # the least and the greatest message id in it
    last_id: str
    has_streams: bool = True  # rows of the table may have a stream

    @property
    def directory(self) -> str:
        return self.staged.rpartition("/")[0]

    def place(self, label: str) -> str:
        """Where readers find it. The staged name is unique, so two attempts never share a file."""
        name = self.staged.rpartition("/")[2]
        directory = partition_dir(self.stream, self.topic, has_streams=self.has_streams)
        return f"{directory}/part-{label}-{self.task:05d}-{name}"


def completed_parts(files: Files) -> list[tuple[str, Part]]:
    """The files of all complete batches, in the order of the batches."""
    found: list[tuple[str, Part]] = []
    for name in files.names(BATCHES):
        if name.endswith(".json"):
            found += (_read(files, f"{BATCHES}/{name}") or {}).items()
    return found


def complete_batch(files: Files, batch_id: int, reports: Sequence[dict[str, Any]]) -> None:
    """Make the files of these reports visible as the batch, in place of what an earlier attempt left."""
    staged = _parts(reports, files.where)
    label = _label(batch_id, staged)
    new = {part.place(label): part for part in staged}
    manifest, intent = (f"{BATCHES}/{label}.{kind}" for kind in ("json", "intent"))
    old, begun = _read(files, manifest), _read(files, intent) or {}
    if old is not None:
        _refuse_other_rows(files.where, label, old.values(), new.values())
    if (old is None and new) or (old is not None and _summary(old.values()) != _summary(new.values())):
        begun = {**begun, **(old or {})}  # an intent also remembers what earlier ones left
        files.replace(intent, _as_json({**begun, **new}))
        failpoint("table.intended")
        _publish(files, new)
        failpoint("table.moved")
        files.replace(manifest, _as_json(new))
        failpoint("table.completed")
    else:
        new = old or {}
    _remove(files, begun.keys() - new.keys())
    for directory in {f"{STAGING}/{batch_id}", *(part.directory for part in staged)}:
        files.remove_dir(directory)
    files.remove(intent)


def _label(batch_id: int, staged: Sequence[Part]) -> str:
    """The name of a batch. Dead letters have no batch; what is delivered of them at once is one of its own."""
    if batch_id >= 0:
        return f"{batch_id:010d}"
    return "late-" + min((part.directory.rpartition("/")[2] for part in staged), default="none")


def _publish(files: Files, parts: dict[str, Part]) -> None:
    directories = {place.rpartition("/")[0] for place in parts}
    for directory in directories:
        files.make_dir(directory)
    for place, part in parts.items():
        try:
            files.move(part.staged, place)
        except FileNotFoundError:
            if files.exists(place):
                continue  # an attempt before this one moved it
            raise StateError(
                f"a file of the batch is gone: {part.staged}",
                where=files.where,
                remedy="let only one pipeline write to the table; the batch is sent again after a restart",
            ) from None
        failpoint("table.moving")
    for directory in directories:
        files.sync(directory)


def _refuse_other_rows(where: str, label: str, old: Iterable[Part], new: Iterable[Part]) -> None:
    """A replay brings the same rows. Others come from another pipeline."""
    if _ids(old) != _ids(new):
        raise StateError(
            f"the table has other rows as batch {label}: {_ids(old)}, not {_ids(new)}",
            where=where,
            remedy="give each pipeline a table of its own",
        )


def _ids(parts: Iterable[Part]) -> tuple[str, str]:
    listed = list(parts)
    return min((part.first_id for part in listed), default=""), max((part.last_id for part in listed), default="")


def _summary(parts: Iterable[Part]) -> dict[tuple[str | None, str], tuple[int, str, str]]:
    """What a batch holds, however its rows are spread over files."""
    found: dict[tuple[str | None, str], tuple[int, str, str]] = {}
    for part in parts:
        key = (part.stream, part.topic)
        rows, first, last = found.get(key, (0, part.first_id, part.last_id))
        found[key] = (rows + part.rows, min(first, part.first_id), max(last, part.last_id))
    return found


def _remove(files: Files, places: Iterable[str]) -> None:
    for place in places:
        files.remove(place)


def _as_json(parts: dict[str, Part]) -> bytes:
    listed = [asdict(part) | {"path": place} for place, part in sorted(parts.items())]
    rows = sum(part.rows for part in parts.values())
    return json.dumps({"version": _VERSION, "rows": rows, "files": listed}, indent=1).encode()


def _read(files: Files, name: str) -> dict[str, Part] | None:
    content = files.read(name)
    if content is None:
        return None
    try:
        fields = json.loads(content)
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']}")
        return {each.pop("path"): Part(**each) for each in fields["files"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(
            f"not a record of a batch: {name} ({error})",
            where=files.where,
            remedy="restore the file from a copy, or let the pipeline write to a new path",
        ) from None


def _parts(reports: Sequence[dict[str, Any]], where: str) -> list[Part]:
    try:
        return [Part(**report) for report in reports]
    except TypeError as error:
        raise StateError(f"not a report of a table's sender: {error}", where=where) from None
