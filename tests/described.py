"""Holds every answer of a control plane against its own description; a hook for clients of httpx."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx
import jsonschema_rs

from headgate.control.service_routes import description

__all__ = ["check_answer"]

_DOCUMENT = description()
_PATHS = {re.compile(re.sub(r"{\w+}", "[^/]+", path)): (path, methods) for path, methods in _DOCUMENT["paths"].items()}


def check_answer(response: httpx.Response) -> None:
    """Its status, kind and content are described. Pages and paths that do not exist are not looked at."""
    path = response.request.url.raw_path.decode().partition("?")[0]
    for pattern, (template, methods) in _PATHS.items():
        operation = methods.get(response.request.method.lower())
        if operation is None or not pattern.fullmatch(path):
            continue
        answers = operation["responses"]
        assert str(response.status_code) in answers, (template, response.status_code)
        [(media_type, content)] = answers[str(response.status_code)]["content"].items()
        assert response.headers["content-type"].partition(";")[0] == media_type, template
        if media_type.endswith("json"):
            response.read()
            _validator(content["schema"]["$ref"]).validate(response.json())
        return


@cache
def _validator(reference: str) -> Any:
    return jsonschema_rs.validator_for({"$ref": reference, "components": _DOCUMENT["components"]})
