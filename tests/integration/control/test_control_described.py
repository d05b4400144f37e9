"""The control plane is what its description says, as Schemathesis sees it: every path, method, body and answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from headgate.control.service_routes import description

from .conftest import ROUTED, Shop, serving

# A row is explained by Spark, which is not here; a pipeline that is restarted would need it, too.
schema = schemathesis.openapi.from_dict(description()).exclude(path_regex=r"/(explain|restart)$")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A control plane with pipelines that stand still, and are of no use to others afterwards."""
    path = tmp_path_factory.mktemp("described") / "headgate.toml"
    path.write_text(ROUTED)
    for client in serving(Shop(path)):
        yield str(client.base_url)


@schema.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Most names are those of pipelines that are there; only `p` has routes, by which dead letters are sent on."""
    if path_parameters and "key" in path_parameters and len(str(path_parameters["key"])) % 4:
        names = ["p"] if context.operation.path.endswith("/replay") else ["p", "plain", "clicks"]
        return {**path_parameters, "key": random.Random(str(path_parameters)).choice(names)}
    return path_parameters


@schema.parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_everything_is_as_described(case: Any, address: str) -> None:
    says_no = [not_a_server_error] if case.path == "/ready" else []  # which is described
    case.call_and_validate(base_url=address, excluded_checks=says_no)
