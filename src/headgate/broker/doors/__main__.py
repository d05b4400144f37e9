"""The doors of a broker as a child process."""

from __future__ import annotations

import msgspec

from headgate.broker.doors.house import Doors, serve
from headgate.broker.doors.options import DoorOptions
from headgate.runtime.child import ready, run_child, until_closed


def _ready(doors: Doors) -> None:
    ready(doors.metrics, url=doors.url, port=int(doors.url.rpartition(":")[2]))


def _work(line: bytes) -> None:
    serve(msgspec.json.decode(line, type=DoorOptions), ready=_ready, until=until_closed)


if __name__ == "__main__":
    run_child(_work)
