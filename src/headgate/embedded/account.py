"""The account that runs PostgreSQL. The server refuses to run as root, so root hands it to an unprivileged user.

The handing over is done by `setpriv` of util-linux. That user may be unable to reach the programs or the data, for
instance below /root. Then, and only then, the server keeps one capability that lets it pass closed directories; the
weaker one is tried first, because a superuser of the database can use whatever the server may read.
"""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headgate.model.errors import DependencyError

__all__ = ["Account", "choose_account"]

logger = logging.getLogger(__name__)

_USERS = ("nobody", "postgres", "daemon")
# dac_read_search enters any directory and reads any file, dac_override also writes. Container runtimes often
# allow only the second.
_CAPABILITIES = ("", "dac_read_search", "dac_override")
_REMEDY = "Run headgate as an ordinary user instead of root."


@dataclass(frozen=True, slots=True)
class Account:
    """A user, and the command prefix that runs a program as that user."""

    uid: int
    gid: int
    prefix: tuple[str, ...] = ()

    def own(self, path: Path) -> None:
        """Give a directory and all that is in it to this user, unless it has it already."""
        if path.stat().st_uid == self.uid:
            return
        # From the bottom up: the directory itself changes hands last, as the sign that all is done.
        for folder, _, files in os.walk(path, topdown=False):
            for name in files:
                os.chown(Path(folder, name), self.uid, self.gid, follow_symlinks=False)
            os.chown(folder, self.uid, self.gid)


def choose_account(data: Path, run: Path, program: Path) -> Account:
    """The account that can run `program` on the data directory `data` with sockets in `run`."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    uid, gid = _owner(data) or _unprivileged()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise DependencyError(
            "PostgreSQL refuses to run as root, and `setpriv` to run it as another user is missing",
            remedy=f"Install util-linux. Or: {_REMEDY}",
        )
    return _reachable(Account(uid, gid), setpriv, places=(data.parent, run), program=program)


def _owner(data: Path) -> tuple[int, int] | None:
    """Data that an ordinary user made stays that user's, so that both can go on with it."""
    try:
        status = data.stat()
    except FileNotFoundError:
        return None
    return (status.st_uid, status.st_gid) if status.st_uid != 0 else None


def _unprivileged() -> tuple[int, int]:
    for name in _USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, user.pw_gid
    raise DependencyError(
        f"PostgreSQL refuses to run as root, and there is none of the users {', '.join(_USERS)} to run it as",
        remedy=f"Add one of these users to /etc/passwd. Or: {_REMEDY}",
    )


def _reachable(account: Account, setpriv: str, *, places: tuple[Path, Path], program: Path) -> Account:
    complaint = ""
    for capability in _CAPABILITIES:
        identity = (f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups")
        prefix = (setpriv, *identity, *_keeping(capability))
        script = 'cd "$1" && cd "$2" && exec "$3" -V'
        trial = subprocess.run(
            [*prefix, "/bin/sh", "-c", script, "sh", *map(str, places), str(program)],
            capture_output=True,
            text=True,
            check=False,
        )
        if trial.returncode == 0:
            logger.debug("PostgreSQL runs as uid %d, capability %s", account.uid, capability or "none")
            return Account(account.uid, account.gid, prefix)
        complaint = trial.stderr.strip() or complaint
    raise DependencyError(
        f"PostgreSQL refuses to run as root, and uid {account.uid} cannot reach {program} and {places[0]}: {complaint}",
        remedy=f"Put both where other users may enter, or allow CAP_DAC_READ_SEARCH and CAP_SETPCAP. Or: {_REMEDY}",
    )


def _keeping(capability: str) -> tuple[str, ...]:
    if not capability:
        return ()
    # access(2) ignores the capabilities of a user other than root unless no_setuid_fixup is set, and PostgreSQL
    # looks for its own programs with access(2).
    return (f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}", "--securebits=+no_setuid_fixup")
