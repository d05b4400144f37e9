"""Everything the control plane answers, in one list; and what concerns the service as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headgate.control import metrics
from headgate.control.dashboard import Stores
from headgate.control.dead_letter_routes import dead_letter_endpoints
from headgate.control.endpoints import Endpoint, openapi
from headgate.control.pipeline_routes import answering, pipeline_endpoints
from headgate.control.pipelines import PipelineControl
from headgate.control.problems import problem
from headgate.control.requests import json_body
from headgate.control.snapshots import SnapshotMaker, snapshot_endpoints
from headgate.model import HeadgateError, InternalError
from headgate.pipeline.report import Report

__all__ = ["Controlled", "control_endpoints", "description"]


class Controlled(SnapshotMaker, Protocol):
    """What the HTTP interface needs of the service."""

    def reports(self) -> list[Report]: ...

    def status(self) -> dict[str, Any]: ...

    def gateway_metrics(self) -> dict[str, Any] | None: ...

    def broker_metrics(self) -> dict[str, Any] | None: ...

    def registry_metrics(self) -> dict[str, Any] | None: ...

    def relay_metrics(self) -> dict[str, Any] | None: ...

    def stores(self) -> Stores: ...

    def control(self) -> PipelineControl: ...

    def stream_info(self, stream: str) -> dict[str, Any] | None: ...

    def request_stop(self) -> None: ...


class _Handlers:
    """What the endpoints of the service itself do."""

    def __init__(self, service: Callable[[], Controlled]) -> None:
        self._service = service

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """A load balancer or an orchestrator asks this."""
        service = self._service()
        reports = service.reports()
        states = {report.pipeline: report.status.value for report in reports}
        failing = {report.pipeline: report.failures_in_row for report in reports if report.failures_in_row}
        status = service.status()
        beside = ("gateway", "broker", "registry", "relay")
        states |= {name: status[name]["status"] for name in beside if status.get(name)}
        is_up = status["phase"] == "running" and bool(states) and all(state == "running" for state in states.values())
        good = is_up and not failing
        answer = {"ready": good, "pipelines": states} | ({"failures_in_row": failing} if failing else {})
        return JSONResponse(answer, status_code=200 if good else 503)

    async def status(self, _: Request) -> Response:
        return JSONResponse(self._service().status())

    async def metrics(self, _: Request) -> Response:
        service = self._service()
        told = service.gateway_metrics(), service.broker_metrics(), service.relay_metrics(), service.registry_metrics()
        page = metrics.render(service.reports(), service.snapshots(), *told)
        return Response(page, media_type=metrics.CONTENT_TYPE)

    async def stream_info(self, request: Request) -> Response:
        name = request.query_params.get("stream", "")
        try:
            info = await to_thread.run_sync(self._service().stream_info, name)
        except HeadgateError as error:
            return problem(502, str(error), error.remedy)
        if info is None:
            return problem(404, f"no destination writes to a stream {name!r}", "add ?stream=NAME of a nats destination")
        return JSONResponse(info)

    async def shutdown(self, request: Request) -> Any:
        await json_body(request)  # who names a pipeline does not mean all of them
        self._service().request_stop()
        return {"status": "stopping"}

    async def describe(self, _: Request) -> Response:
        return JSONResponse(description())


def control_endpoints(service: Callable[[], Controlled]) -> list[Endpoint]:
    """All endpoints. The service is asked for with each request."""
    handlers = _Handlers(service)
    return [
        Endpoint("GET", "/health", handlers.health, "Whether the process is alive; needs no token.", "service",
                 answer="Health"),
        Endpoint(
            "GET", "/ready", handlers.ready, "Whether every pipeline runs, and none has a batch that fails.", "service",
            answer="Ready", other={503: "Not every one does."},
        ),
        Endpoint("GET", "/status", handlers.status, "Everything about every pipeline.", "service", answer="Status"),
        Endpoint("GET", "/metrics", handlers.metrics, "Metrics for Prometheus.", "service", media_type="text/plain"),
        Endpoint("GET", "/openapi.json", handlers.describe, "This description.", "service", answer="OpenApi"),
        Endpoint(
            "GET", "/streams/info", handlers.stream_info, "A JetStream stream that a destination writes to.", "service",
            answer="Stream", query={"stream": "Its name."},
            problems={404: "No destination writes to it.", 502: "NATS cannot be reached."},
        ),
        *pipeline_endpoints(lambda: service().control()),
        *dead_letter_endpoints(lambda: service().control()),
        *snapshot_endpoints(service),
        Endpoint(
            "POST", "/shutdown", answering(handlers.shutdown, 202), "Stop everything, cleanly.", "service", status=202,
            answer="Stopping", problems={400: "It takes no body."},
        ),
    ]  # fmt: skip


def description() -> dict[str, Any]:
    """The OpenAPI description, which needs no running service."""

    def nobody() -> Controlled:
        raise InternalError("a description was asked to answer", remedy="report it")

    return openapi(control_endpoints(nobody))
