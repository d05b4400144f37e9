"""`headgate warm`: does once what would otherwise make the first starts slow."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from headgate.cli.output import note
from headgate.embedded import find_java
from headgate.pipeline.compile import compile_all
from headgate.pipeline.jvm import archive_of, is_whole, make_archive

__all__ = ["warm"]


def warm() -> None:
    """Compile the decoders and archive the Java classes that Spark loads: a minute now, seconds at every start.

    Idempotent. Useful when an image is built, or after an upgrade of headgate, Spark or Java; `headgate run` does the
    same in the background when it finds that it was not done.
    """
    began = time.monotonic()
    note("compiling the decoders")
    compile_all()
    with tempfile.TemporaryDirectory() as scratch:
        java = find_java(Path(scratch))  # a home that is made for a runtime has no archive: it is gone with this
        if not is_whole(archive_of(java.home)):
            note("archiving Spark's classes")
            if make_archive(java.home) is None:
                note("Spark will start without an archive of its classes")
    note(f"ready after {time.monotonic() - began:.0f} s")
