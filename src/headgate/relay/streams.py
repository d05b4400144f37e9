"""More doors: a process that only serves the log of a relay, for more consumers than one process can feed.

It reads the files that the relay writes, on the same disk, and hears of an event as soon as it is durable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headgate import __version__
from headgate.eventlog import LogReader
from headgate.eventlog.fanout import FanOut, FanOutOptions
from headgate.model import StateError
from headgate.relay.dictionary import dictionary_route, load_dictionary
from headgate.relay.doors import relay_doors
from headgate.relay.front import Front, url_of
from headgate.runtime.listening import listen

__all__ = ["open_streams"]


@asynccontextmanager
async def open_streams(data_dir: Path, host: str, port: int, options: FanOutOptions) -> AsyncIterator[str]:
    """Serve the streams of the relay in `data_dir`; the address."""
    log = data_dir / "log"
    if not log.is_dir():
        raise StateError("there is no log of a relay", where=str(log), remedy="start it first: headgate relay run")
    async with AsyncExitStack() as stack:
        listener = listen(host, port, backlog=512, where="port")
        stack.callback(listener.close)
        reader = stack.enter_context(LogReader(log))

        async def health(request: Request) -> Response:
            return JSONResponse({"version": f"headgate {__version__}", "seq": reader.head_seq})

        dictionary = load_dictionary(data_dir)
        application = Starlette(
            routes=[Route("/_health", health), Route("/xrpc/_health", health), dictionary_route(dictionary)]
        )
        front = Front(application, FanOut(reader, relay_doors(reader, dictionary), options=options))
        await front.start(listener)
        stack.push_async_callback(front.close)
        yield url_of(listener)
