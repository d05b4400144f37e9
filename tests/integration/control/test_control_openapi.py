"""The OpenAPI description: as committed, and true of the server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headgate.control.service_routes import description

from .conftest import ROUTED, Shop, serving

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"
DOCUMENT = description()
OPERATIONS = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]
GETS = [path for method, path in OPERATIONS if method == "get"]
WITH_BODY = [path for m, path in OPERATIONS if "requestBody" in DOCUMENT["paths"][path][m]]


def test_the_committed_file_is_not_stale() -> None:
    text = json.dumps(DOCUMENT, indent=2, sort_keys=True) + "\n"
    assert COMMITTED.read_text() == text, "write it anew: headgate schema --openapi > docs/openapi.json"


def test_it_describes_what_the_server_serves(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == json.loads(json.dumps(DOCUMENT))
    for method, path in OPERATIONS:
        operation = DOCUMENT["paths"][path][method]
        in_path = re.findall(r"{(\w+)}", path)
        declared = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"]
        assert declared == in_path
        assert operation["summary"].endswith(".")


def test_the_older_names_are_there() -> None:
    for rest in ("", "/destinations", "/offsets", "/restart", "/cdc/abandon-batch", "/explain"):
        for alias in ("sources", "connectors"):
            assert f"/{alias}/{{key}}{rest}" in DOCUMENT["paths"]


texts = st.sampled_from(["p", "plain", "clicks", "1", "0", "-1", "9" * 30, "..", "%", "null", "²"]) | st.text(
    max_size=20
)


@given(st.data())
def test_every_get_answers_as_described(client: httpx.Client, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(GETS))
    operation = DOCUMENT["paths"][path]["get"]
    url = re.sub(r"{\w+}", lambda _: quote(data.draw(texts).encode("utf-8", "replace"), safe=""), path)
    names = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    query = data.draw(st.dictionaries(st.sampled_from([*names, "other"]), texts, max_size=3))
    encoded = "&".join(f"{name}={quote(value.encode('utf-8', 'replace'), safe='')}" for name, value in query.items())
    answer = client.get(f"{url}?{encoded}")
    other_path = "{" in path and answer.status_code in (307, 404, 405)  # a value with a slash is another path
    assert str(answer.status_code) in operation["responses"] or other_path, (url, answer.text)
    if answer.headers.get("content-type", "").endswith("problem+json"):
        assert answer.json()["status"] == answer.status_code
        assert answer.json()["remedy"]
    elif path != "/metrics" and answer.status_code == 200 and answer.request.url.path != "/":  # dots lead to the pages
        assert isinstance(answer.json(), dict)


HOSTILE: list[bytes] = [
    b"{",
    b"nonsense",
    b"\xff\xfe\x00",
    b"[]",
    b"1",
    b'"text"',
    b"null",
    b"NaN",
    b'{"rows": [{"kind": NaN}], "reason": NaN, "table": NaN}',
    b'{"rows": [{"kind": 1e999}], "reason": 1e999, "table": 1e999}',
    b'{"rows": [{"kind": "\\ud800"}], "reason": "\\ud800", "table": "\\ud800"}',
    b'{"rows": {}, "numbers": {}, "table": {}}',
    b'{"rows": [1], "numbers": ["1"], "table": 1}',
    b'{"rows": "x", "numbers": [true], "table": []}',
    b'{"rows": null, "numbers": [-1], "table": null}',
    b'{"rows": [null], "numbers": [9223372036854775808], "table": [1]}',
    b'{"rows": [[]], "reason": {"a": 1}, "table": {"a": 1}}',
    b'{"rows": [{}, 1], "reason": 99999999999999999999999999, "table": 1}',
    b'{"rows": 1, "to": "t", "reason": [], "table": 1}',
    b'{"rows": 1, "to": {"topic": 1}, "reason": false, "table": 1}',
    b"[" * 50_000,
    b'{"a":' * 50_000,
    b'{"rows": [' + b"[" * 500 + b"]" * 500 + b'], "reason": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"rows": [{"kind": ' + b"[" * 500 + b"]" * 500 + b"}]}",
    b'{"rows": [{"a": "' + b"x" * (5 << 20) + b'"}]}',
]


@pytest.mark.parametrize("path", WITH_BODY)
def test_hostile_bodies_are_the_senders_fault(client: httpx.Client, path: str) -> None:
    for body in HOSTILE:
        answer = client.post(path.replace("{key}", "p"), content=body)
        assert 400 <= answer.status_code < 500, (body[:60], answer.text[:200])
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["remedy"]


@pytest.mark.spark
def test_hostile_rows_are_explained_like_others(tmp_path: Path, spark: SparkSession) -> None:
    path = tmp_path / "headgate.toml"
    path.write_text(ROUTED)
    for client in serving(Shop(path, spark)):
        explain_hostile_rows(client)


def explain_hostile_rows(client: httpx.Client) -> None:
    rows: list[Any] = [
        {}, {"kind": None}, {"kind": {"deep": [1]}}, {"kind": ""}, {"kind": "*"}, {"kind": "x" * 10_000},
        {"customer": "²"}, {"customer": "--5"}, {"customer": "9" * 5000}, {"customer": 1.5}, {"customer": []},
    ]  # fmt: skip
    answer = client.post("/pipelines/p/explain", json={"rows": rows})
    assert answer.status_code == 200, answer.text
    assert [each["row"] for each in answer.json()["rows"]] == rows
    assert client.post("/pipelines/p/explain", json={"rows": []}).json() == {"rows": [], "remarks": []}
    unknown = client.post("/pipelines/p/explain", json={"rows": [{"knid": "x"}]}).json()
    assert unknown["remarks"] == ["the source has no column knid: left out"]
    too_many = client.post("/pipelines/p/explain", json={"rows": [{}] * 1001})
    assert too_many.status_code == 400
    assert client.post("/pipelines/plain/explain", json={"rows": [{}]}).status_code == 400
    assert client.post("/pipelines/nobody/explain", json={"rows": [{}]}).status_code == 404


def test_a_page_that_was_rebound_to_this_machine_reaches_nothing(client: httpx.Client, shop: Shop) -> None:
    """Its Host is its own name, and so is its origin: without a token only addresses and localhost are answered."""
    for method, path in OPERATIONS:
        url = re.sub(r"{\w+}", "p", path)
        evil = {"Host": "evil.example:8710", "Origin": "http://evil.example:8710"}
        assert client.request(method.upper(), url, headers=evil).status_code == 403, path
    port = client.base_url.port
    assert client.get("/status", headers={"Host": f"localhost:{port}"}).status_code == 200
    assert shop.stops == 0


def test_a_token_guards_every_path_but_health(shop: Shop) -> None:
    for client in serving(shop, token="s3cret"):
        assert client.get("/no/such/path").status_code == 401
        assert client.get("/health/").status_code == 401
        assert client.get("/status", headers={"Authorization": "Bearer s3cret"}).status_code == 200
        for method, path in OPERATIONS:
            url = re.sub(r"{\w+}", "p", path)
            for headers in (
                {},
                {"Authorization": "s3cret"},
                {"Authorization": "bearer s3cret"},
                {"Authorization": "ä"},
            ):
                sent = {name: value.encode() for name, value in headers.items()}
                answer = client.request(method.upper(), url, headers=sent)  # type: ignore[arg-type]
                wanted = (200,) if path == "/health" else (401, 429)  # who guesses has to wait
                assert answer.status_code in wanted, path
    assert shop.stops == 0


def test_what_is_refused_is_a_problem_everywhere(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for client in serving(shop):
        for method, path, status in [("GET", "/no/such", 404), ("PUT", "/status", 405), ("DELETE", "/login", 405)]:
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
            assert answer.json()["remedy"]
        assert client.delete("/snapshots").headers["allow"] == "GET, HEAD, POST"
        assert client.put("/pipelines/p/dead-letters/purge").headers["allow"] == "POST"
        assert client.head("/health").status_code == 200
        monkeypatch.setattr(shop, "status", lambda: 1 / 0)
        fault = httpx.get(f"{client.base_url}/status")
        assert (fault.status_code, fault.headers["content-type"]) == (500, "application/problem+json")
