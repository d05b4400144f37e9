"""Pipelines over HTTP: look at them, steer them, ask where rows would go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headgate.control.endpoints import Endpoint
from headgate.control.pipelines import NotFoundError, PipelineControl
from headgate.control.problems import problem
from headgate.control.requests import bad_request, everything, json_body, whole
from headgate.model import HeadgateError, Kind, UsageError

__all__ = ["NO_PIPELINE", "Control", "answering", "pipeline_endpoints"]

_STATUS = {Kind.OCCUPIED: 409, Kind.CONFIG: 422, Kind.USAGE: 400, Kind.CONNECT: 502, Kind.DELIVERY: 502}
NO_PIPELINE = {404: "There is no such pipeline."}
_MOST_ROWS = 1000
_ORDERS = {
    "pause": "Finish the batch, then hold still.",
    "resume": "Go on after a pause.",
    "restart": "End the run and begin another; also after an error.",
    "stop": "Finish the batch, then end this pipeline.",
}

Control = Callable[[], PipelineControl]
Work = Callable[[Request], Awaitable[Any]]


def answering(work: Work, status: int = 200) -> Callable[[Request], Awaitable[Response]]:
    """A handler that answers with JSON, or with the problem."""

    async def handle(request: Request) -> Response:
        try:
            return JSONResponse(await work(request), status_code=status)
        except NotFoundError as error:
            return problem(404, error.message, error.remedy)
        except HeadgateError as error:
            return problem(_STATUS.get(error.kind, 500), str(error), error.remedy)

    return handle


class _Handlers:
    """What the endpoints do. The control is asked for each time, because pipelines start after the server."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def calling(self, name: str, *arguments: Any) -> Work:
        """A method of the control with the path's key, in a thread: it may wait for a server."""

        async def work(request: Request) -> Any:
            await json_body(request)
            return await to_thread.run_sync(getattr(self._control(), name), request.path_params["key"], *arguments)

        return work

    async def list_all(self, _: Request) -> Any:
        return {"pipelines": self._control().all()}

    async def all_destinations(self, _: Request) -> Any:
        return {"destinations": await to_thread.run_sync(self._control().destinations)}

    async def destinations(self, request: Request) -> Any:
        return {"destinations": await to_thread.run_sync(self._control().destinations, request.path_params["key"])}

    async def abandon(self, request: Request) -> Any:
        body = await json_body(request, "batch_id", "all")
        batch_id = whole(body.get("batch_id"))
        if "batch_id" in body and batch_id is None:
            raise bad_request("batch_id is a number")
        if everything(body) == ("batch_id" in body):
            raise UsageError(
                "which batch?",
                remedy='send {"batch_id": N}, the failing_batch of the status, or {"all": true}, whichever fails now',
            )
        return await to_thread.run_sync(self._control().abandon, request.path_params["key"], batch_id)

    async def reload(self, request: Request) -> Any:
        await json_body(request)
        return await to_thread.run_sync(self._control().reload)

    async def explain(self, request: Request) -> Any:
        rows = (await json_body(request, "rows")).get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or len(rows) > _MOST_ROWS:
            raise bad_request('the body has no rows: send {"rows": [{"kind": "order"}]}, a thousand at most')
        return await to_thread.run_sync(self._control().explain, request.path_params["key"], rows)


def _aliases(rest: str = "") -> tuple[str, ...]:
    """The names under which Iggy's users know them."""
    return (f"/sources/{{key}}{rest}", f"/connectors/{{key}}{rest}")


def pipeline_endpoints(control: Control) -> list[Endpoint]:
    """Everything under /pipelines but dead letters, and what concerns all pipelines."""
    handlers = _Handlers(control)
    return [
        Endpoint(
            "GET", "/pipelines", answering(handlers.list_all), "Every pipeline, in short.", "pipelines",
            answer="Pipelines", also=("/sources", "/connectors"),
        ),
        Endpoint(
            "GET", "/pipelines/{key}", answering(handlers.calling("get")),
            "One pipeline: status with its history, configuration with secrets masked.", "pipelines",
            answer="Pipeline", problems=NO_PIPELINE, also=_aliases(),
        ),
        Endpoint(
            "GET", "/pipelines/{key}/offsets", answering(handlers.calling("offsets")), "How far a pipeline has come.",
            "pipelines", answer="Offsets", problems=NO_PIPELINE, also=_aliases("/offsets"),
        ),
        Endpoint(
            "GET", "/destinations", answering(handlers.all_destinations), "Where rows of all pipelines went.",
            "destinations", answer="Destinations",
        ),
        Endpoint(
            "GET", "/pipelines/{key}/destinations", answering(handlers.destinations),
            "Where rows of a pipeline went: circuit, counts, last error.", "destinations", answer="Destinations",
            problems=NO_PIPELINE, also=_aliases("/destinations"),
        ),
        *(
            Endpoint(
                "POST", f"/pipelines/{{key}}/{order}", answering(handlers.calling("order", order), 202), summary,
                "pipelines", answer="Ordered", status=202, problems={**NO_PIPELINE, 400: "It takes no body."},
                also=_aliases(f"/{order}"),
            )
            for order, summary in _ORDERS.items()
        ),
        Endpoint(
            "POST", "/pipelines/{key}/abandon-batch", answering(handlers.abandon, 202),
            "Give up the batch that keeps failing; its rows are lost.", "pipelines", status=202,
            answer="Abandoned", request="Abandon",
            body='{"batch_id": 12}, the failing_batch of the status; or {"all": true}, whichever fails now',
            problems={**NO_PIPELINE, 400: "The body names no batch.", 409: "No such batch is failing."},
            also=_aliases("/cdc/abandon-batch"),
        ),
        Endpoint(
            "POST", "/reload", answering(handlers.reload),
            "Read the configuration again: routes, mappings and lists change between two batches.", "service",
            answer="Reloaded",
            problems={
                400: "It takes no body, or there is no file.",
                422: "The new configuration is wrong; the old one stays.",
                502: "A mapping cannot be fetched.",
            },
        ),
        Endpoint(
            "POST", "/pipelines/{key}/explain", answering(handlers.explain), "Where sample rows would go, and why.",
            "pipelines", answer="Explained", request="Samples", body='{"rows": [{"kind": "order"}]}',
            problems={**NO_PIPELINE, 400: "The body has no rows."},
            also=_aliases("/explain"),
        ),
    ]  # fmt: skip
