"""Places where a test may end the process as a crash would.

`HEADGATE_FAILPOINT=pipeline.sent` makes the process kill itself the first time it comes to that place. Without the
variable a failpoint is one comparison with None.
"""

from __future__ import annotations

import os
import signal

__all__ = ["failpoint"]

_WANTED = os.environ.get("HEADGATE_FAILPOINT")


def failpoint(name: str) -> None:
    """Die here, at once and without clean-up, if a test asked for it."""
    if name == _WANTED:
        os.kill(os.getpid(), signal.SIGKILL)
