"""The `webhook` source of a pipeline: the server beside the query, and what Spark is told."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from headgate.model.plugin import API_VERSION
from headgate.runtime.listening import listen
from headgate.sources.base import DESTRUCTIVE_POLLING, Mode, Offset, Source
from headgate.sources.webhook.options import ServerOptions
from headgate.sources.webhook.server import WebhookServer
from headgate.spool.marks import Marks

__all__ = ["WebhookSource"]


class WebhookSource(Source):
    """Requests, each accepted only once it is durable; they are deleted when they are delivered."""

    api_version = API_VERSION
    format = "webhook"

    def __init__(
        self, name: str, options: ServerOptions, *, max_rows_per_batch: int = 10_000, event_schema: str | None = None
    ) -> None:
        self.name = name
        self._server_options = options
        self._max_rows = max_rows_per_batch
        self._event_schema = event_schema
        self._marks = Marks(options.spool)
        self._server: WebhookServer | None = None
        self._lock = threading.Lock()

    def mode(self) -> Mode:
        return DESTRUCTIVE_POLLING

    def options(self) -> dict[str, str]:
        return {
            "spool": str(self._server_options.spool),
            "body": self._server_options.body,
            "maxOffsetsPerTrigger": str(self._max_rows),
            "confirm": "pipeline",
        }

    def start(self) -> None:
        """Listen. Requests are accepted from now on, whatever becomes of the query."""
        with self._lock:
            if self._server is None or not self._server.running:
                options = replace(self._server_options, origin=self.origin())
                self._server = WebhookServer(options)

    def stop(self) -> None:
        with self._lock:
            if self._server is not None:
                self._server.stop()
                self._server = None

    @property
    def url(self) -> str | None:
        """Where it listens, while it does."""
        return self._server.url if self._server else None

    def commit(self, end: Offset) -> None:
        self._marks.deliver(int(end["row"]))
        server = self._server
        if server is not None:
            server.intake.release()

    def origin(self) -> str:
        """A new spool counts anew, so its rows must have other ids."""
        return "-".join(part for part in (self._server_options.origin, self._marks.spool_id()) if part)

    def load(self, stream: Any) -> Any:
        """With a schema, also the column `event`: the body, parsed. Fields that do not fit are NULL."""
        frame = super().load(stream)
        if self._event_schema is None:
            return frame
        text = self._event_schema.replace("\\", "\\\\").replace("'", "\\'")
        event = f"from_json(cast(body as string), '{text}') as event"
        return frame.selectExpr("body", event, *(name for name in frame.columns if name != "body"))

    def check(self) -> str:
        options = self._server_options
        if self._server is None:
            listen(options.host, options.port, backlog=1, where=f"sources.{self.name}.port").close()
        return f"{options.host}:{options.port} is free"

    def lag_rows(self, end: Offset, latest: Offset) -> int:
        return max(0, int(latest["row"]) - int(end["row"]))

    def describe(self) -> dict[str, Any]:
        server = self._server
        if server is None:
            return {"server": "stopped"}
        counts = server.app.counts
        return {
            "server": "listening" if server.running else "stopped",
            "url": server.url,
            "requests_total": counts.requests,
            "rows_total": counts.rows,
            "duplicates_total": counts.duplicates,
            "refused_total": counts.refused,
            "unavailable_total": counts.unavailable,
            "spool_bytes": server.spool.held_bytes,
        }
