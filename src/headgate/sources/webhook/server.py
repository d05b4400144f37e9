"""The HTTP server of a webhook source, in a thread of its own. It can also run alone, for other readers of its spool:

    python -m headgate.sources.webhook.server options.json

The file holds the fields of `ServerOptions` as JSON. Without a file they come as one line on standard input. It prints
its address, and ends in good order at SIGTERM and Ctrl-C, or when that input closes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from headgate.model import ConfigError, HeadgateError
from headgate.runtime.listening import listen
from headgate.sources.webhook.app import MOST_HEADER_BYTES, WebhookApp
from headgate.sources.webhook.intake import Intake
from headgate.sources.webhook.options import ServerOptions
from headgate.spool.spool import Spool
from headgate.wire.webhook import Signing

__all__ = ["WebhookServer", "main"]

_GRACE_S = 5


class WebhookServer:
    """A spool and the server that fills it. It listens as soon as it is made."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._listener = listen(options.host, options.port, backlog=1024, where="port")
        try:
            self.spool = Spool(
                options.spool,
                max_bytes=options.max_spool_bytes,
                segment_bytes=options.segment_bytes,
                window_s=options.window_s,
                max_keys=options.max_keys,
            )
            origin = options.origin or self.spool.marks.spool_id()
        except BaseException:
            self._listener.close()
            raise
        self.intake = Intake(self.spool)
        self.app = WebhookApp(options, self.intake, origin)
        self._server = uvicorn.Server(self._config())
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, name="webhook", daemon=True
        )
        self.url = _url(self._listener, options.path)
        self._thread.start()

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.app,
            http=_guarded(self.options.max_connections, self.options.request_timeout_s),
            ws="none",
            interface="asgi3",
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            timeout_graceful_shutdown=_GRACE_S,
        )

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Answer the requests that are being received, and take no others."""
        self._server.should_exit = True
        self._thread.join(_GRACE_S + 5)
        self._listener.close()
        self.intake.close()


def _guarded(max_connections: int, timeout_s: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, with what it lacks: a limit to connections, and to the time a request's head may take."""

    class Guarded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            if len(self.connections) >= max_connections:
                self.transport = transport
                transport.write(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\nconnection: close\r\n\r\n")
                transport.close()
                return
            super().connection_made(transport)
            self.loop.call_later(timeout_s, self._check_head, None)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.loop.call_later(timeout_s, self._check_head, self.cycle)

        def _check_head(self, last: RequestResponseCycle | None) -> None:
            """Closed, if no further request has begun since."""
            if self.cycle is last and not self.transport.is_closing():
                self.transport.abort()

    return Guarded


def _url(listener: socket.socket, path: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


def _options(text: str) -> ServerOptions:
    try:
        given: dict[str, Any] = json.loads(text)
        unknown = set(given) - {each.name for each in fields(ServerOptions)}
        if unknown:
            raise ConfigError(f"unknown options: {', '.join(sorted(unknown))}", remedy="see ServerOptions")
        if "signing" in given:
            given["signing"] = Signing(**given["signing"] | {"secrets": tuple(given["signing"]["secrets"])})
        return ServerOptions(**given | {"spool": Path(given["spool"])})
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"not the options of a server: {error}", remedy="give them as one JSON object") from None


def main(arguments: Sequence[str] = ()) -> int:
    """Run until told to stop."""
    try:
        text = Path(arguments[0]).read_text(encoding="utf-8") if arguments else sys.stdin.readline()
        server = WebhookServer(_options(text))
    except (HeadgateError, OSError) as error:
        remedy = f"\n  -> {error.remedy}" if isinstance(error, HeadgateError) else ""
        print(f"{error}{remedy}", file=sys.stderr)  # noqa: T201 - there is nobody else to tell
        return error.exit_code if isinstance(error, HeadgateError) else ConfigError("").exit_code
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    print(server.url, flush=True)  # noqa: T201
    if not arguments:
        threading.Thread(target=_wait_for_end, args=(stopped,), daemon=True).start()
    stopped.wait()
    server.stop()
    return 0


def _wait_for_end(stopped: threading.Event) -> None:
    while sys.stdin.read(1024):
        pass
    stopped.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
