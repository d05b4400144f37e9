"""Snapshots over HTTP: list them, ask for one, watch it, end it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headgate.control.endpoints import Endpoint
from headgate.control.problems import problem
from headgate.control.requests import bad_request, json_body, text, whole
from headgate.model import ConfigError, HeadgateError

__all__ = ["SnapshotMaker", "snapshot_endpoints"]


class SnapshotMaker(Protocol):
    """What the routes need of the service."""

    def snapshots(self) -> list[dict[str, Any]]: ...

    def request_snapshot(self, table: str, **options: Any) -> dict[str, Any]: ...

    def cancel_snapshot(self, snapshot_id: str) -> dict[str, Any] | None: ...


def snapshot_endpoints(service: Callable[[], SnapshotMaker]) -> list[Endpoint]:
    """Everything under /snapshots."""

    async def list_all(_: Request) -> Response:
        return JSONResponse({"snapshots": service().snapshots()})

    async def ask(request: Request) -> Response:
        """A body such as `{"table": "shop.users"}`; `method` and `chunk_rows` may stand beside it."""
        try:
            body = await json_body(request, "table", "method", "chunk_rows")
            table, options = text(body, "table"), _options(body)
        except HeadgateError as error:
            return problem(400, str(error), error.remedy)
        if table is None:
            return problem(400, "the body names no table", 'send JSON: {"table": "users"}')
        try:
            answer = await to_thread.run_sync(partial(service().request_snapshot, table, **options))
        except HeadgateError as error:
            return problem(404 if isinstance(error, ConfigError) else 400, error.message, error.remedy)
        return JSONResponse(answer, status_code=202)

    async def one(request: Request) -> Response:
        wanted = request.path_params["id"]
        if request.method == "DELETE":
            found = await to_thread.run_sync(service().cancel_snapshot, wanted)
        else:
            found = next((each for each in service().snapshots() if _is(each, wanted)), None)
        if found is None:
            return problem(404, f"there is no snapshot {wanted}", "list them: GET /snapshots")
        return JSONResponse(found)

    missing = {404: "There is no such snapshot."}
    return [
        Endpoint(
            "GET",
            "/snapshots",
            list_all,
            "Every snapshot that is remembered, newest first.",
            "snapshots",
            answer="Snapshots",
        ),
        Endpoint(
            "POST",
            "/snapshots",
            ask,
            "Ask for a snapshot of a table.",
            "snapshots",
            answer="SnapshotAccepted",
            request="SnapshotRequest",
            body='{"table": "users"}; method and chunk_rows may stand beside it',
            status=202,
            problems={400: "The body names no table.", 404: "No pipeline publishes it."},
        ),
        Endpoint("GET", "/snapshots/{id}", one, "One snapshot.", "snapshots", answer="Snapshot", problems=missing),
        Endpoint("DELETE", "/snapshots/{id}", one, "End a snapshot.", "snapshots", answer="Snapshot", problems=missing),
    ]


def _options(body: dict[str, Any]) -> dict[str, Any]:
    """What may stand beside the table; who makes the snapshot checks the values."""
    options: dict[str, Any] = {"method": method} if (method := text(body, "method")) else {}
    if "chunk_rows" in body:
        options["chunk_rows"] = whole(body["chunk_rows"])
        if options["chunk_rows"] is None:
            raise bad_request("chunk_rows is a number")
    return options


def _is(snapshot: dict[str, Any], wanted: str) -> bool:
    """By its id, or by that of one which it stands for."""
    return wanted == snapshot["id"] or wanted in snapshot["replaces"]
