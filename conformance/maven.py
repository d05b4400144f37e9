"""Jars from Maven's central registry, with everything they need, fetched once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>headgate</groupId><artifactId>{name}</artifactId><version>1</version><dependencies>{dependencies}</dependencies>
</project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def jars(directory: Path, *artifacts: str) -> Path:
    """The directory with the jars of `group:artifact:version` and of what they depend on."""
    found = directory / "jars"
    if found.exists():
        return found
    if shutil.which("mvn") is None:
        raise SystemExit("mvn is missing: apt-get install maven")
    directory.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    (directory / "pom.xml").write_text(_POM.format(name=directory.name, dependencies=dependencies))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=fetched"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"maven cannot fetch {', '.join(artifacts)}: {done.stdout[-500:]}")
    (directory / "fetched").rename(found)
    return found
