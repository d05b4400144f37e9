"""The API as clients know it: paths, bodies and codes."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from headgate.model import ConfigError
from headgate.registry.http.bodies import MOST_BODY
from headgate.registry.http.server import CONTENT_TYPE

USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
WITH_AGE = USER | {"fields": [*USER["fields"], {"name": "age", "type": "int", "default": 0}]}
NEEDS_AGE = USER | {"fields": [*USER["fields"], {"name": "age", "type": "int"}]}


def body(schema: Any, **more: Any) -> dict[str, Any]:
    return {"schema": schema if isinstance(schema, str) else json.dumps(schema)} | more


def register(client: httpx.Client, subject: str, schema: Any, **more: Any) -> int:
    answer = client.post(f"/subjects/{subject}/versions", json=body(schema, **more))
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def refused(answer: httpx.Response, code: int) -> str:
    assert (answer.json()["error_code"], answer.status_code) == (code, code if code < 1000 else code // 100), (
        answer.text
    )
    assert answer.headers["content-type"] == CONTENT_TYPE
    return str(answer.json()["message"])


def test_a_schema_is_registered_once_and_found_by_its_id_and_place(registry: httpx.Client) -> None:
    number = register(registry, "users-value", USER)
    assert register(registry, "users-value", json.dumps(USER, indent=2)) == number
    assert register(registry, "others", USER) == number
    assert registry.get("/subjects").json() == ["others", "users-value"]
    assert registry.get("/subjects/users-value/versions").json() == [1]
    latest = {"subject": "users-value", "version": 1, "id": number, "schema": json.dumps(USER)}
    assert registry.get("/subjects/users-value/versions/latest").json() == latest
    assert registry.get("/subjects/users-value/versions/-1").json() == latest
    assert registry.post("/subjects/users-value", json=body(USER)).json() == latest
    assert registry.get("/subjects/users-value/versions/1/schema").json() == USER
    assert registry.get(f"/schemas/ids/{number}").json() == {"schema": json.dumps(USER)}
    assert registry.get(f"/schemas/ids/{number}/schema").json() == USER
    assert registry.get(f"/schemas/ids/{number}/subjects").json() == ["others", "users-value"]
    places = [{"subject": "others", "version": 1}, {"subject": "users-value", "version": 1}]
    assert registry.get(f"/schemas/ids/{number}/versions").json() == places
    assert [each["subject"] for each in registry.get("/schemas").json()] == ["others", "users-value"]
    assert registry.get("/schemas?subjectPrefix=oth&latestOnly=true").json()[0]["id"] == number
    assert sorted(registry.get("/schemas/types").json()) == ["AVRO", "JSON", "PROTOBUF"]
    assert registry.get("/subjects").headers["content-type"] == CONTENT_TYPE


def test_what_is_not_there_has_the_codes_that_clients_know(registry: httpx.Client) -> None:
    register(registry, "users", USER)
    refused(registry.get("/subjects/nobody/versions"), 40401)
    refused(registry.post("/subjects/nobody", json=body(USER)), 40401)
    refused(registry.delete("/subjects/nobody"), 40401)
    refused(registry.get("/subjects/users/versions/2"), 40402)
    refused(registry.get("/schemas/ids/77"), 40403)
    refused(registry.get("/schemas/ids/none"), 40403)
    refused(registry.post("/subjects/users", json=body(WITH_AGE)), 40403)
    refused(registry.get("/config/users"), 40408)
    refused(registry.get("/mode/users"), 40409)
    refused(registry.get("/subjects/users/versions/0"), 42202)
    refused(registry.get("/subjects/users/versions/first"), 42202)
    refused(registry.put("/config", json={"compatibility": "SOME"}), 42203)
    refused(registry.put("/mode", json={"mode": "SOME"}), 42204)
    refused(registry.get("/nothing"), 404)
    refused(registry.patch("/subjects"), 405)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", '{"type": "record", "name": "R"}'),
        ("AVRO", '{"type": "array", "items": "Nowhere"}'),
        ("AVRO", "[" * 2000),
        ("JSON", '{"type": "numberish"}'),
        ("JSON", '{"$ref": "#/nowhere"}'),
        ("JSON", '{"$ref": "#"}'),
        ("JSON", '{"minimum": NaN}'),
        ("PROTOBUF", 'syntax = "proto3"; message M { Nowhere n = 1; }'),
        ("PROTOBUF", 'import "/etc/hostname";'),
        ("PROTOBUF", "AAAA"),
    ],
)
def test_what_is_no_schema_is_refused(registry: httpx.Client, kind: str, text: str) -> None:
    refused(registry.post("/subjects/s/versions", json=body(text, schemaType=kind)), 42201)
    assert registry.get("/subjects").json() == []


def test_bodies_are_bounded_and_names_that_nobody_knows_are_refused(registry: httpx.Client) -> None:
    path = "/subjects/s/versions"
    refused(registry.post(path, content=b"{"), 422)
    refused(registry.post(path, json=body(USER, schematype="JSON")), 422)
    refused(registry.post(path, json=body(USER, metadata={"owner": "me"})), 422)
    refused(registry.post(path, json=body(USER, schemaType="XML")), 422)
    refused(registry.post(path, content=b'"' + b"x" * MOST_BODY + b'"'), 413)
    refused(registry.delete("/subjects/s?permanent=ture"), 422)
    refused(registry.post("/subjects/%00/versions", json=body(USER)), 42208)


def test_a_subject_may_have_any_name_that_can_be_printed(registry: httpx.Client) -> None:
    register(registry, "a%2Fb%20%C3%A4%25", USER)
    assert registry.get("/subjects").json() == ["a/b ä%"]
    assert registry.get("/subjects/a%2Fb%20%C3%A4%25/versions").json() == [1]


def test_levels_decide_what_may_follow(registry: httpx.Client) -> None:
    assert registry.get("/config").json() == {"compatibilityLevel": "BACKWARD"}
    register(registry, "users", USER)
    message = refused(registry.post("/subjects/users/versions", json=body(NEEDS_AGE)), 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    path = "/compatibility/subjects/users/versions"
    assert registry.post(f"{path}/latest", json=body(NEEDS_AGE)).json() == {"is_compatible": False}
    verbose = registry.post(f"{path}?verbose=true", json=body(NEEDS_AGE)).json()
    assert "version 1: READER_FIELD_MISSING_DEFAULT_VALUE" in verbose["messages"][0]
    assert registry.post(f"{path}/1?verbose=true", json=body(WITH_AGE)).json() == {
        "is_compatible": True,
        "messages": [],
    }
    refused(registry.post(f"{path}/7", json=body(WITH_AGE)), 40402)
    assert registry.put("/config/users", json={"compatibility": "FORWARD"}).json() == {"compatibility": "FORWARD"}
    assert registry.get("/config/users").json() == {"compatibilityLevel": "FORWARD"}
    register(registry, "users", NEEDS_AGE)
    assert registry.delete("/config/users").json() == {"compatibilityLevel": "FORWARD"}
    assert registry.get("/config/users?defaultToGlobal=true").json() == {"compatibilityLevel": "BACKWARD"}
    registry.put("/config", json={"compatibility": "FULL_TRANSITIVE"})
    without_age = USER | {"doc": "which a reader of the second version needs"}
    refused(registry.post("/subjects/users/versions", json=body(without_age)), 409)
    registry.put("/config/users", json={"compatibility": "NONE"})
    register(registry, "users", '"string"')


def test_versions_are_deleted_softly_first_and_then_for_good(registry: httpx.Client) -> None:
    first, second = register(registry, "users", USER), register(registry, "users", WITH_AGE)
    refused(registry.delete("/subjects/users/versions/1?permanent=true"), 40407)
    assert registry.delete("/subjects/users/versions/1").json() == 1
    refused(registry.delete("/subjects/users/versions/1"), 40406)
    assert registry.get("/subjects/users/versions").json() == [2]
    assert registry.get("/subjects/users/versions?deleted=true").json() == [1, 2]
    assert registry.get(f"/schemas/ids/{first}").status_code == 200  # data with this id can still be read
    assert registry.delete("/subjects/users/versions/1?permanent=true").json() == 1
    refused(registry.get(f"/schemas/ids/{first}"), 40403)
    refused(registry.delete("/subjects/users?permanent=true"), 40405)
    assert registry.delete("/subjects/users").json() == [2]
    refused(registry.delete("/subjects/users"), 40404)
    assert registry.get("/subjects").json() == []
    assert registry.get("/subjects?deleted=true").json() == ["users"]
    assert registry.delete("/subjects/users?permanent=true").json() == [2]
    assert register(registry, "users", USER) > second  # no id is given twice
    assert registry.get("/subjects/users/versions").json() == [1]


def test_modes_close_subjects_and_let_ids_in(registry: httpx.Client) -> None:
    assert registry.get("/mode").json() == {"mode": "READWRITE"}
    refused(registry.post("/subjects/old/versions", json=body(USER, id=40, version=3)), 42205)
    registry.put("/mode/old", json={"mode": "IMPORT"})
    assert register(registry, "old", USER, id=40, version=3) == 40
    assert registry.get("/subjects/old/versions").json() == [3]
    refused(registry.post("/subjects/old/versions", json=body(WITH_AGE, id=40)), 42205)
    assert registry.delete("/mode/old").json() == {"mode": "IMPORT"}
    assert register(registry, "old", WITH_AGE) == 41
    refused(registry.put("/mode", json={"mode": "IMPORT"}), 42205)
    registry.put("/mode", json={"mode": "READONLY"})
    refused(registry.post("/subjects/old/versions", json=body('"string"')), 42205)
    refused(registry.delete("/subjects/old"), 42205)
    refused(registry.put("/config", json={"compatibility": "NONE"}), 42205)
    assert register(registry, "old", USER) == 40  # which is there


ADDRESS = '{"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}'
ORDER = '{"type": "record", "name": "shop.Order", "fields": [{"name": "to", "type": "shop.Address"}]}'


def test_a_schema_may_refer_to_others_which_then_cannot_go(registry: httpx.Client) -> None:
    refused(registry.post("/subjects/order/versions", json=body(ORDER)), 42201)
    register(registry, "address", ADDRESS)
    references = [{"name": "shop.Address", "subject": "address", "version": 1}]
    number = register(registry, "order", ORDER, references=references)
    assert registry.get(f"/schemas/ids/{number}").json()["references"] == references
    assert registry.get("/subjects/address/versions/1/referencedby").json() == [number]
    assert "version=1" in refused(registry.delete("/subjects/address"), 42206)
    missing = [references[0] | {"version": 9}]
    refused(registry.post("/subjects/order/versions", json=body(ORDER, references=missing)), 42201)
    registry.delete("/subjects/order")
    registry.delete("/subjects/address")
    refused(registry.delete("/subjects/address?permanent=true"), 42206)
    registry.delete("/subjects/order?permanent=true")
    assert registry.delete("/subjects/address?permanent=true").json() == [1]


def test_json_schemas_and_proto_files_refer_to_others_by_name(registry: httpx.Client) -> None:
    register(registry, "address.json", {"type": "object"}, schemaType="JSON")
    named = [{"name": "address.json", "subject": "address.json", "version": 1}]
    register(registry, "order.json", {"$ref": "address.json"}, schemaType="JSON", references=named)
    register(registry, "a.proto", 'syntax = "proto3"; package p; message A { string city = 1; }', schemaType="PROTOBUF")
    text = 'syntax = "proto3"; package p; import "a.proto"; message O { A to = 1; }'
    imported = [{"name": "a.proto", "subject": "a.proto", "version": 1}]
    number = register(registry, "o", text, schemaType="PROTOBUF", references=imported)
    answer = registry.get(f"/schemas/ids/{number}?format=serialized").json()
    descriptor = FileDescriptorProto.FromString(base64.b64decode(answer["schema"]))
    assert [each.name for each in descriptor.message_type] == ["O"]
    assert register(registry, "o", answer["schema"], schemaType="PROTOBUF", references=imported) == number


def test_normalized_schemas_are_the_same_in_any_order(registry: httpx.Client) -> None:
    turned = {"fields": USER["fields"], "name": "User", "type": "record"}
    path = "/subjects/{}/versions?normalize=true"
    one, other = (
        registry.post(path.format(name), json=body(each)).json() for name, each in (("a", USER), ("b", turned))
    )
    assert one == other
    assert registry.post("/subjects/a?normalize=true", json=body(turned)).json()["version"] == 1


def test_a_stored_schema_that_cannot_be_read_stops_its_own_subject_only(registry: httpx.Client, database: str) -> None:
    register(registry, "users", USER)
    register(registry, "others", WITH_AGE)
    with psycopg.connect(database) as connection:
        connection.execute("update registry.schemas set body = 'nonsense' where id = 1")
    assert "cannot be read" in refused(registry.post("/subjects/users/versions", json=body(WITH_AGE)), 409)
    assert registry.get("/subjects/users/versions/1").json()["schema"] == "nonsense"
    assert len(registry.get("/schemas").json()) == 2
    register(registry, "others", WITH_AGE | {"doc": "people"})
    registry.delete("/subjects/users/versions/1")
    register(registry, "users", WITH_AGE)


def test_web_pages_and_names_are_kept_out(registry: httpx.Client) -> None:
    refused(registry.get("/subjects", headers={"origin": "https://evil.example"}), 403)
    refused(registry.get("/subjects", headers={"host": "evil.example"}), 403)
    assert registry.get("/subjects", headers={"host": "localhost:8081"}).status_code == 200


def test_users_log_in_with_names_and_passwords(serve: Any) -> None:
    url = serve(users={"ann": "secret-enough"}).url
    refused(httpx.get(f"{url}/subjects"), 401)
    assert httpx.get(f"{url}/subjects").headers["www-authenticate"].startswith("Basic")
    refused(httpx.get(f"{url}/subjects", auth=("ann", "wrong")), 401)
    refused(httpx.get(f"{url}/subjects", headers={"authorization": "Basic ????"}), 401)
    assert httpx.get(f"{url}/subjects", auth=("ann", "secret-enough")).json() == []
    assert httpx.get(f"{url}/health").status_code == 200


def test_nobody_listens_in_public_without_users(serve: Any) -> None:
    with pytest.raises(ConfigError, match="users are required"):
        serve(host="0.0.0.0")


def test_it_speaks_tls(serve: Any, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    url = serve(tls_cert=cert, tls_key=key).url
    assert httpx.get(f"{url}/subjects", verify=ssl.create_default_context(cafile=cert)).json() == []
    with pytest.raises(ConfigError, match="certificate"):
        serve(tls_cert=key, tls_key=cert)


def test_lists_come_in_pages_and_are_never_cut_without_a_word(registry: httpx.Client, database: str) -> None:
    for name in "abc":
        register(registry, name, USER)
    register(registry, "c", WITH_AGE)
    assert registry.get("/subjects?offset=1&limit=1").json() == ["b"]
    assert [each["version"] for each in registry.get("/schemas?latestOnly=true").json()] == [1, 1, 2]
    assert [each["version"] for each in registry.get("/schemas?offset=2&limit=5").json()] == [1, 2]
    refused(registry.get("/subjects?limit=some"), 422)
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into registry.versions (subject, version, schema_id)"
            " select 's' || n, 1, 1 from generate_series(1, 10000) as n"
        )
    assert "10,000" in refused(registry.get("/subjects"), 422)
    assert len(registry.get("/subjects?limit=10000").json()) == 10_000
    with psycopg.connect(database) as connection:
        connection.execute("update registry.schemas set body = repeat('x', 500000)")
    assert "too large" in refused(registry.get("/schemas?limit=100"), 422)


def test_many_who_compare_leave_room_for_those_who_read(registry: httpx.Client) -> None:
    """Protobuf takes a process each; meanwhile the others are answered."""
    url = str(registry.base_url)
    texts = [f'syntax = "proto3"; message M{number} {{ string name = 1; }}' for number in range(24)]

    def work(text: str) -> int:
        return httpx.post(
            f"{url}/subjects/s-{hash(text)}/versions", json=body(text, schemaType="PROTOBUF"), timeout=120
        ).status_code

    with ThreadPoolExecutor(24) as pool:
        running = [pool.submit(work, text) for text in texts]
        assert all(registry.get("/subjects").status_code == 200 for _ in range(20))
        assert [each.result() for each in running] == [200] * 24
