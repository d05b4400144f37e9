"""A consumer of a stream that does nothing but take messages off the wire: `python -m bench.follow URL STREAM SUBJECT`.

It stands for an attached consumer at the least possible cost, so that the server's own work of delivering is what the
measurement pays for.
"""

from __future__ import annotations

import json
import socket
import sys
from urllib.parse import urlsplit

_TASTE = 1 << 18


def main(url: str, stream: str, subject: str) -> None:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as link:
        link.recv(_TASTE)
        config = {
            "deliver_subject": "bench.follow",
            "ack_policy": "none",
            "deliver_policy": "new",
            "replay_policy": "instant",
        }
        request = json.dumps({"stream_name": stream, "config": config | {"filter_subject": subject}}).encode()
        link.sendall(
            b'CONNECT {"verbose":false,"headers":true}\r\nSUB bench.follow 1\r\nSUB bench.reply 2\r\n'
            + b"PUB $JS.API.CONSUMER.CREATE.%s bench.reply %d\r\n%s\r\n" % (stream.encode(), len(request), request)
        )
        buffer = bytearray(_TASTE)
        while size := link.recv_into(buffer):
            if size < 64 and bytes(buffer[:4]) == b"PING":
                link.sendall(b"PONG\r\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
