"""What the operating system says of files, as our errors: a full disk and a missing right are nobody's bug."""

from __future__ import annotations

import errno
import re

from headgate.model.errors import AuthError, CapacityError, HeadgateError, StateError

__all__ = ["disk_error", "disk_error_in"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# As Python and Java write it, with the path behind or before it.
_TEXTS = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EACCES: "Permission denied",
    errno.EROFS: "Read-only file system",
}
_SAID = re.compile(rf"({'|'.join(_TEXTS.values())})(?:: '([^'\n]+)')?")
_BEFORE = re.compile(r"(/[^\s:()]+):? \(?$")


def disk_error(error: OSError, where: str = "") -> HeadgateError | None:
    """Return the error that a person can act on; None if it is of another sort."""
    place = where or str(error.filename or "")
    if error.errno in _FULL:
        return _full(place)
    if error.errno in _DENIED:
        return _denied(error.strerror or "Permission denied", place)
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP):
        return StateError(
            f"the path cannot be used: {error.strerror}", where=place, remedy="correct the path, or what lies there"
        )
    return None


def disk_error_in(text: str) -> HeadgateError | None:
    """Return the disk error in what another process has printed; None if there is none."""
    found = _SAID.search(text)
    if found is None:
        return None
    before = _BEFORE.search(text[max(0, found.start() - 400) : found.start()])
    place = found[2] or (before[1] if before else "")
    if found[1] in (_TEXTS[errno.ENOSPC], _TEXTS[errno.EDQUOT]):
        return _full(place)
    return _denied(found[1], place)


def _full(place: str) -> CapacityError:
    return CapacityError("the disk is full", where=place, remedy="free disk space; it is tried again")


def _denied(why: str, place: str) -> AuthError:
    return AuthError(
        f"a file or directory cannot be used: {why}",
        where=place,
        remedy="let headgate's user read and write it, or choose another place",
    )
