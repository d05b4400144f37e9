"""DAG-CBOR in its one form, CAR files, and the JSON of records."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headgate.wire.atproto import (
    Account,
    Action,
    AtprotoError,
    Commit,
    Identity,
    Op,
    Reason,
    account_json,
    cbor,
    cid_of,
    cid_text,
    commit_json,
    identity_json,
    parse_cid,
    read_car,
    write_car,
)
from headgate.wire.atproto.jetstream import json_value

CID = cid_of(b"anything")
LINK = b"\xd8\x2a\x58\x25\x00"


def unpadded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


# Values of the public interoperability tests: CBOR, its CID, and its JSON.
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    (
        (
            "p2Rib29s9WRudWxs9mVhcnJheYNjYWJjY2RlZmNnaGlmb2JqZWN0pGNhcnKDY2FiY2NkZWZjZ2hpZGJvb2z1Zm51bWJlchh7ZnN0cmluZ2NhYmN"
            "mc3RyaW5nY2FiY2dpbnRlZ2VyGHtndW5pY29kZXgvYX7DtsOxwqnivZjimI7wk4uT8J+YgPCfkajigI3wn5Gp4oCN8J+Rp+KAjfCfkac"
        ),
        "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq",
        {
            "string": "abc",
            "unicode": (
                "a~\xf6\xf1\xa9\u2f58\u260e\U000132d3\U0001f600"
                "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f467"
            ),
            "integer": 123,
            "bool": True,
            "null": None,
            "array": ["abc", "def", "ghi"],
            "object": {"string": "abc", "number": 123, "bool": True, "arr": ["abc", "def", "ghi"]},
        },
    ),
    (
        (
            "o2Fh2CpYJQABcRIgZQYqWloA/BbXPGlEI3zLwVscSnI0SJM2iR0JF0GiOdBhYlggnFERjvLLiw9qm45JrqH9QTzyC2Lu1Xb4ne6+sBrCzI1hY6R"
            "jcmVm2CpYJQABVRIgQljP/3j2E2l2l1Y/kmyR5dNXTS6iWuftktbr/COjiJ5kc2l6ZRknEGUkdHlwZWRibG9iaG1pbWVUeXBlamltYWdlL2pwZWc"
        ),
        "bafyreihldkhcwijkde7gx4rpkkuw7pl6lbyu5gieunyc7ihactn5bkd2nm",
        {
            "a": {"$link": "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a"},
            "b": {"$bytes": "nFERjvLLiw9qm45JrqH9QTzyC2Lu1Xb4ne6+sBrCzI0"},
            "c": {
                "$type": "blob",
                "ref": {"$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"},
                "mimeType": "image/jpeg",
                "size": 10000,
            },
        },
    ),
    (
        (
            "oWFhoWFigaJhZILYKlglAAFxEiBlBipaWgD8Ftc8aUQjfMvBWxxKcjRIkzaJHQkXQaI50NgqWCUAAXESIGUGKlpaAPwW1zxpRCN8y8FbHEpyNEi"
            "TNokdCRdBojnQYWWCWCCcURGO8suLD2qbjkmuof1BPPILYu7Vdvid7r6wGsLMjVggiE+sPoHobU9tSIqGI+309LLCcWQIRmEXwxcoDt19tas"
        ),
        "bafyreid3imdulnhgeytpf6uk7zahjvrsqlofkmm5b5ub2maw4kqus6jp4i",
        {
            "a": {
                "b": [
                    {
                        "d": [{"$link": "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a"}] * 2,
                        "e": [
                            {"$bytes": "nFERjvLLiw9qm45JrqH9QTzyC2Lu1Xb4ne6+sBrCzI0"},
                            {"$bytes": "iE+sPoHobU9tSIqGI+309LLCcWQIRmEXwxcoDt19tas"},
                        ],
                    }
                ]
            }
        },
    ),
]


@pytest.mark.parametrize(("text", "cid", "value"), MODELS, ids=["plain", "links and bytes", "nested"])
def test_the_data_model(text: str, cid: str, value: dict[str, Any]) -> None:
    raw = unpadded(text)
    assert cid_text(cid_of(raw)) == cid
    assert parse_cid(cid) == cid_of(raw)
    decoded = cbor.decode_map(raw)
    assert cbor.encode(decoded) == raw
    assert json_value(decoded) == value
    assert cbor.decode_from(raw, 0) == (decoded, len(raw))


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "1801",
        "190001",
        "1a00000001",
        "1b0000000000000001",
        "3801",
        "780161",
        "580161",
        "980101",
        "b801616101",
        "d9002a5825" + "00" + CID.hex(),
        "d82a590025" + "00" + CID.hex(),
        "d82a5825" + "01" + CID.hex(),
        "d82a60",
        "c101",
        "7f6161ff",
        "5f4161ff",
        "9f01ff",
        "bf616101ff",
        "a2616101616101",
        "a2616201616101",
        "a262616101616201",
        "a10101",
        "f7",
        "f0",
        "f818",
        "f93c00",
        "fa00000000",
        "fb7ff8000000000000",
        "fb7ff0000000000000",
        "61ff",
        "0101",
        "1c",
        "9bffffffffffffffff",
        "bbffffffffffffffff",
        "5bffffffffffffffff",
        "7b00000000ffffffff",
        "9a00ffffff",
        "81" * 300,
        "81" * 100_000,
        "a16161" * 100_000,
    ],
    ids=lambda raw: raw[:24] or "nothing",
)
def test_what_is_not_dag_cbor(raw: str) -> None:
    with pytest.raises(AtprotoError) as caught:
        cbor.decode(bytes.fromhex(raw))
    assert caught.value.reason is Reason.BAD_CBOR
    assert not _slow_reader_takes(bytes.fromhex(raw))


def _slow_reader_takes(raw: bytes) -> bool:
    try:
        return cbor.decode_from(raw, 0)[1] == len(raw)
    except AtprotoError:
        return False


def test_bytes_that_look_like_a_cid_are_told_from_links() -> None:
    raw = b"\xa2\x61a\x58\x24" + CID + b"\x61b" + LINK + CID
    value = cbor.decode_map(raw)
    assert value == {"a": CID, "b": CID}
    assert not cbor.is_link(value["a"])
    assert cbor.is_link(value["b"])
    as_json = json_value(value)
    assert as_json["b"] == {"$link": cid_text(CID)}
    assert unpadded(as_json["a"]["$bytes"]) == CID


def test_the_slow_reader_reads_no_more_than_it_has_time_for() -> None:
    looks_like_cid = b"\x58\x24" + CID
    assert cbor.decode(b"\x82" + looks_like_cid + b"\x80") == [CID, []]
    crowd = b"\x9a" + cbor.MAX_SLOW_ITEMS.to_bytes(4, "big") + b"\xa0" * (cbor.MAX_SLOW_ITEMS - 1) + looks_like_cid
    with pytest.raises(AtprotoError) as caught:
        cbor.decode(crowd.replace(b"\x9a\0\0", b"\x99"))
    assert caught.value.reason is Reason.BAD_CBOR


def test_a_field_is_found_where_it_is() -> None:
    raw = cbor.encode({"a": [1, {"seq": 5}], "seq": 300, "text": "seq"})
    span = cbor.find_field(raw, "seq")
    assert span is not None
    assert raw[span[0] : span[1]] == b"\x19\x01\x2c"
    assert cbor.find_field(raw, "none") is None
    with pytest.raises(AtprotoError):
        cbor.find_field(b"\x80", "seq")


UNWRITABLE = {"object": object(), "number key": {1: 2}, "big": 1 << 64, "nan": float("nan"), "surrogate": "\ud800"}


@pytest.mark.parametrize("value", UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_cannot_be_written(value: object) -> None:
    with pytest.raises(AtprotoError):
        cbor.encode(value)


def test_only_maps_are_maps() -> None:
    with pytest.raises(AtprotoError) as caught:
        cbor.decode_map(b"\x80")
    assert caught.value.reason is Reason.BAD_CBOR


class TestCar:
    blocks = {cid_of(block): block for block in (b"one", b"two" * 100, b"")}

    def test_it_comes_back(self) -> None:
        car = read_car(write_car(CID, self.blocks.items()))
        assert car.roots == (CID,)
        assert car.blocks == self.blocks

    def test_blocks_may_come_twice_and_in_any_order(self) -> None:
        items = [*self.blocks.items(), *reversed(self.blocks.items())]
        assert read_car(write_car(CID, items)).blocks == self.blocks

    def test_raw_blocks_may_be_there(self) -> None:
        raw = b"\x01\x55" + cid_of(b"blob")[2:]
        assert read_car(write_car(CID, [(raw, b"blob")])).blocks == {raw: b"blob"}

    def test_a_block_is_what_its_cid_says(self) -> None:
        with pytest.raises(AtprotoError) as caught:
            read_car(write_car(CID, [(CID, b"something else")]))
        assert caught.value.reason is Reason.BLOCK_HASH

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\x00",
            b"\x3a",
            b"\x81\x20" + bytes(5_000),
            b"\x80" * 10,
            b"\xff\xff\xff\xff\x7f",
            b"\x01\xa0",
            b"\x01\x80",
            write_car(CID, []) + b"\x01\x00",
            write_car(CID, []) + b"\x24" + CID[:-1],
            write_car(CID, []) + b"\xa4\x00" + cid_of(b""),
            write_car(CID, [(b"\x01\x70" + cid_of(b"x")[2:], b"x")]),
            write_car(CID, [(b"\x12\x20" + cid_of(b"x")[2:], b"x")]),
        ],
        ids=[
            "nothing",
            "no header",
            "header cut off",
            "header too long",
            "endless length",
            "huge length",
            "no roots",
            "no map",
            "short block",
            "block cut off",
            "long length",
            "dag-pb",
            "other cid",
        ],
    )
    def test_what_is_no_car(self, data: bytes) -> None:
        with pytest.raises(AtprotoError) as caught:
            read_car(data)
        assert caught.value.reason in (Reason.BAD_CAR, Reason.BAD_CBOR)

    @pytest.mark.parametrize(
        "header",
        [{"version": 1}, {"roots": [], "version": 2}, {"roots": ["x"], "version": 1}, {"roots": None, "version": 1}],
        ids=repr,
    )
    def test_its_header_is_of_version_1(self, header: dict[str, Any]) -> None:
        raw = cbor.encode(header)
        with pytest.raises(AtprotoError) as caught:
            read_car(bytes((len(raw),)) + raw)
        assert caught.value.reason is Reason.BAD_CAR


class TestJetstream:
    record = cbor.encode({"$type": "app.test.note", "text": "hi", "of": CID})

    def commit(self, *ops: Op) -> Commit:
        return Commit("did:web:a.test", 1, "3jzfcijpj2z2a", None, "", CID, ops, b"", None, False)

    def test_a_commit_is_one_object_per_op(self) -> None:
        cid = cid_of(self.record)
        ops = Op(Action.CREATE, "app.test.note/1", cid, None), Op(Action.DELETE, "app.test.note/2", None, CID)
        created, deleted = map(json.loads, commit_json(self.commit(*ops), {cid: self.record}, 5))
        assert created == {
            "did": "did:web:a.test",
            "time_us": 5,
            "kind": "commit",
            "commit": {
                "rev": "3jzfcijpj2z2a",
                "operation": "create",
                "collection": "app.test.note",
                "rkey": "1",
                "record": {"$type": "app.test.note", "text": "hi", "of": {"$link": cid_text(CID)}},
                "cid": cid_text(cid),
            },
        }
        assert deleted["commit"] == {
            "rev": "3jzfcijpj2z2a",
            "operation": "delete",
            "collection": "app.test.note",
            "rkey": "2",
        }

    @pytest.mark.parametrize("blocks", [{}, {CID: b"\x80"}, {CID: b"\xff"}], ids=["missing", "no map", "no cbor"])
    def test_an_op_is_told_of_even_if_its_record_cannot_be_read(self, blocks: dict[bytes, bytes]) -> None:
        [line] = commit_json(self.commit(Op(Action.CREATE, "a.b.c/1", CID, None)), blocks, 5)
        assert json.loads(line)["commit"]["cid"] == cid_text(CID)
        assert "record" not in json.loads(line)["commit"]

    def test_a_record_that_is_nested_too_deep_is_refused(self) -> None:
        value: Any = {}
        for _ in range(100_000):
            value = [value]
        with pytest.raises(AtprotoError) as caught:
            json_value(value)
        assert caught.value.reason is Reason.BAD_CBOR
        while value:  # taken apart by hand: freeing it at once would go just as deep
            value = value.pop()

    def test_identity_and_account(self) -> None:
        identity = identity_json(Identity("did:web:a.test", 7, "t", "a.test"), 5)
        assert json.loads(identity) == {
            "did": "did:web:a.test",
            "time_us": 5,
            "kind": "identity",
            "identity": {"did": "did:web:a.test", "seq": 7, "time": "t", "handle": "a.test"},
        }
        assert "handle" not in json.loads(identity_json(Identity("did:web:a.test", 7, "t", None), 5))["identity"]
        account = account_json(Account("did:web:a.test", 7, "t", False, "deleted"), 5)
        assert json.loads(account) == {
            "did": "did:web:a.test",
            "time_us": 5,
            "kind": "account",
            "account": {"active": False, "did": "did:web:a.test", "seq": 7, "time": "t", "status": "deleted"},
        }
        assert "status" not in json.loads(account_json(Account("did:web:a.test", 7, "t", True, None), 5))["account"]
