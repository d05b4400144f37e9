"""A receiver of webhooks that misbehaves as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Step = int | str | tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Got:
    """One request, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """`script` says what happens to the next requests, by path or for all (`*`); after that they are accepted.

    A status, `(status, headers)`, `close` (no answer), `hang` (until the test is over), `huge` (an endless answer),
    `cut` (a good status, and then the connection breaks).
    """

    url: str = ""
    script: dict[str, list[Step]] = field(default_factory=dict)
    got: list[Got] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    in_flight: int = 0
    most_in_flight: int = 0
    meet: threading.Barrier | None = None  # requests wait here for each other
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.got]

    def next_step(self, path: str) -> Step:
        with self.lock:
            steps = self.script.get(path) or self.script.get("*") or []
            return steps.pop(0) if steps else 200


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["content-length"]))
        with receiver.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append(Got(self.path, headers, body))
            receiver.in_flight += 1
            receiver.most_in_flight = max(receiver.most_in_flight, receiver.in_flight)
        if receiver.meet is not None:
            receiver.meet.wait(10)
        step = receiver.next_step(self.path)
        with receiver.lock:
            receiver.in_flight -= 1
        self.play(step, receiver)

    def play(self, step: Step, receiver: Receiver) -> None:
        self.close_connection = isinstance(step, str)
        if step == "hang":
            receiver.over.wait(30)
        elif step == "huge":
            self.answer(400, {"content-length": str(1 << 40)}, b"")
            with suppress(OSError):
                while not receiver.over.is_set():
                    self.wfile.write(b"much " * 10_000)
        elif step == "cut":
            self.answer(200, {"content-length": "100"}, b"only this")
        elif isinstance(step, tuple):
            self.answer(step[0], step[1] | {"content-length": "2"}, b"no")
        elif isinstance(step, int):
            text = b"fine" if step < 300 else b"it is \x00 wrong " * 50
            self.answer(step, {"content-length": str(len(text)), "set-cookie": "a=b"}, text)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - so it is called there
        """Quiet."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.receiver = receiver = Receiver(url=f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
