"""Reads frames with the Python SDK: one per line on standard input, in hexadecimal; for each a line on standard output,
empty if it was read, else the error.
"""

import sys

from atproto import CAR, firehose_models, models, parse_subscribe_repos_message  # type: ignore[import-not-found]
from atproto_firehose.models import Frame  # type: ignore[import-not-found]


def read(message: bytes) -> None:
    frame = Frame.from_bytes(message)
    if not isinstance(frame, firehose_models.MessageFrame):
        raise TypeError("no message")
    event = parse_subscribe_repos_message(frame)
    if isinstance(event, models.ComAtprotoSyncSubscribeRepos.Commit):
        car = CAR.from_bytes(event.blocks)
        for op in event.ops:
            if op.cid is not None and car.blocks.get(op.cid) is None:
                raise LookupError("no record")
    elif isinstance(event, models.ComAtprotoSyncSubscribeRepos.Sync):
        CAR.from_bytes(event.blocks)


for line in sys.stdin:
    try:
        read(bytes.fromhex(line))
        said = ""
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    sys.stdout.write(said.replace("\n", " ") + "\n")
