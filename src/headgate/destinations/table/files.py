"""The file system under a table: any that pyarrow or fsspec knows, with errors that have a remedy.

Files of a local file system are forced to disk before anybody relies on them; remote ones are durable once written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from headgate.model import AuthError, CapacityError, ConfigError, ConnectError, DeliveryError

__all__ = ["Files", "shown_path"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Files:
    """Files below one directory, by their paths in it."""

    def __init__(self, path: str) -> None:
        self.where = shown_path(path)
        self.system, self.root = _resolve(path)
        self._local = isinstance(self.system, fs.LocalFileSystem)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def make_dir(self, name: str) -> None:
        with self.errors():
            self.system.create_dir(self.path(name), recursive=True)

    def create(self, name: str) -> Any:
        """A stream to a new file."""
        self.make_dir(name.rpartition("/")[0])
        with self.errors():
            return self.system.open_output_stream(self.path(name), compression=None)

    def exists(self, name: str) -> bool:
        with self.errors():
            return self.system.get_file_info(self.path(name)).type is fs.FileType.File

    def names(self, directory: str) -> list[str]:
        """The names of the files in a directory, in order; none if there is no directory."""
        selector = fs.FileSelector(self.path(directory), allow_not_found=True)
        with self.errors():
            return sorted(info.base_name for info in self.system.get_file_info(selector) if info.is_file)

    def read(self, name: str) -> bytes | None:
        """A whole file, or None if there is none."""
        try:
            with self.errors(), self.system.open_input_stream(self.path(name), compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def replace(self, name: str, content: bytes) -> None:
        """Write a file so that a reader finds it whole or not at all."""
        beside = f"{name}.new"
        with self.create(beside) as stream, self.errors():
            stream.write(content)
        self.sync(beside)
        self.move(beside, name)
        self.sync(name.rpartition("/")[0])

    def move(self, old: str, new: str) -> None:
        with self.errors():
            self.system.move(self.path(old), self.path(new))

    def remove(self, name: str) -> None:
        """Remove a file, which may be gone already."""
        try:
            with self.errors():
                self.system.delete_file(self.path(name))
        except FileNotFoundError:
            pass

    def remove_dir(self, name: str) -> None:
        """Remove a directory with all that is in it, which may be gone already."""
        try:
            with self.errors():
                self.system.delete_dir(self.path(name))
        except FileNotFoundError:
            pass

    def sync(self, name: str) -> None:
        """Force a file, or the names in a directory, to disk."""
        if not self._local:
            return
        with self.errors():
            descriptor = os.open(Path(self.path(name)), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What went wrong with a file, as our errors; that one is missing stays as it is."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._error(error) from None
        except pa.ArrowException as error:
            raise DeliveryError(f"cannot write the table: {error}", where=self.where) from None

    def _error(self, error: OSError) -> Exception:
        text = f"cannot write the table: {error.strerror or error}"
        if error.errno in _FULL:
            return CapacityError(text, where=self.where, remedy="free disk space; delivery then continues")
        if error.errno in _DENIED or "access denied" in text.lower():
            return AuthError(text, where=self.where, remedy="let headgate's user write to this place")
        if self._local:
            return DeliveryError(text, where=self.where, remedy="look after the disk; delivery is tried again")
        return ConnectError(text, where=self.where, remedy="check that the file system can be reached")


def shown_path(path: str) -> str:
    """A path or URL without credentials."""
    parts = urlsplit(path)
    if not parts.netloc:
        return path
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _resolve(path: str) -> tuple[Any, str]:
    if "://" not in path:
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        system, root = fs.FileSystem.from_uri(path)
    except pa.ArrowInvalid:
        system, root = _from_fsspec(path)
    except OSError as error:
        raise ConnectError(f"cannot open {shown_path(path)}: {error}", remedy="check the URL") from None
    return system, root.rstrip("/")


def _from_fsspec(path: str) -> tuple[Any, str]:
    """A file system that only fsspec knows, if that is installed."""
    try:
        from fsspec.core import url_to_fs

        system, root = url_to_fs(path)
    except (ImportError, ValueError):
        raise ConfigError(
            f"no file system for {shown_path(path)}",
            where="path",
            remedy="use a path, file://, s3://, gs:// or hdfs://; for others install the package of fsspec for it",
        ) from None
    return fs.PyFileSystem(fs.FSSpecHandler(system)), str(root)
