"""Dead letters over HTTP: see them, send them on, throw them away."""

from __future__ import annotations

from functools import partial
from typing import Any

from anyio import to_thread
from starlette.requests import Request

from headgate.control.endpoints import Endpoint
from headgate.control.pipeline_routes import NO_PIPELINE, Control, answering
from headgate.control.pipelines import NotFoundError
from headgate.control.requests import SELECTORS, bad_request, json_body, number, refuse_unknown, selection, text
from headgate.model.address import Address

__all__ = ["dead_letter_endpoints"]

_MOST = 1000
_QUERY = {
    "reason": "Only those of this reason.",
    "topic": "Only those for this topic.",
    "after": "Only those with a larger number.",
    "limit": "How many; 100 if not said, 1000 at most.",
}


class _Handlers:
    """What the endpoints do."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def some(self, request: Request) -> Any:
        store = self._control().dead_letters(request.path_params["key"])
        query = request.query_params
        refuse_unknown(query, tuple(_QUERY), where="the query")
        listing = partial(
            store.list,
            reason=query.get("reason"),
            topic=query.get("topic"),
            after=number(query.get("after"), 0),
            limit=min(number(query.get("limit"), 100), _MOST),
        )
        found = await to_thread.run_sync(listing)
        return {"counts": store.counts(), "dead_letters": [letter.as_dict() for letter in found]}

    async def one(self, request: Request) -> Any:
        store = self._control().dead_letters(request.path_params["key"])
        wanted = number(request.path_params["number"], 0)
        found = await to_thread.run_sync(store.get, wanted)
        if found is None:
            raise NotFoundError(f"there is no dead letter {wanted}", remedy="list them first")
        return found.as_dict(payload=True)

    async def replay(self, request: Request) -> Any:
        body = await json_body(request, *SELECTORS, "to")
        replaying = partial(
            self._control().replay,
            request.path_params["key"],
            selection(body),
            to=_target(body) if "to" in body else None,
        )
        return await to_thread.run_sync(replaying)

    async def purge(self, request: Request) -> Any:
        store = self._control().dead_letters(request.path_params["key"])
        body = await json_body(request, *SELECTORS)
        return {"purged": await to_thread.run_sync(store.purge, selection(body))}


def _target(body: dict[str, Any]) -> Address:
    to = body["to"]
    if not isinstance(to, dict) or not to.get("topic"):
        raise bad_request('to is an object such as {"stream": "shop", "topic": "orders"}')
    refuse_unknown(to, ("stream", "topic"), where="to")
    return Address(text(to, "stream") or "", text(to, "topic") or "")


def dead_letter_endpoints(control: Control) -> list[Endpoint]:
    """Everything under /pipelines/{key}/dead-letters."""
    handlers = _Handlers(control)
    base = "/pipelines/{key}/dead-letters"
    problems = {**NO_PIPELINE, 400: "The body or the query makes no sense."}
    tag = "dead letters"
    return [
        Endpoint(
            "GET",
            base,
            answering(handlers.some),
            "Rows that were refused.",
            tag,
            answer="DeadLetters",
            query=_QUERY,
            numbers=frozenset({"after", "limit"}),
            problems=problems,
        ),
        Endpoint(
            "GET",
            f"{base}/{{number}}",
            answering(handlers.one),
            "One of them, with its payload.",
            tag,
            answer="DeadLetter",
            numbers=frozenset({"number"}),
            problems={400: "That is no number.", 404: "There is no such pipeline or dead letter."},
        ),
        Endpoint(
            "POST",
            f"{base}/replay",
            answering(handlers.replay),
            "Send dead letters on.",
            tag,
            answer="Replayed",
            request="Replay",
            body='One of {"numbers": [1]}, {"reason": "cap"}, {"all": true}; '
            'with "to": {"stream": "s", "topic": "t"} to another destination',
            problems={**problems, 409: "A batch is being delivered."},
        ),
        Endpoint(
            "POST",
            f"{base}/purge",
            answering(handlers.purge),
            "Throw dead letters away.",
            tag,
            answer="Purged",
            request="Chosen",
            body='One of {"numbers": [1]}, {"reason": "cap"}, {"all": true}',
            problems=problems,
        ),
    ]
