"""Options, credentials, receipts and the translation of errors: everything that needs no server."""

from __future__ import annotations

import base64
import binascii
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import headgate.destinations.nats as nats
from headgate.destinations.nats import NatsOptions
from headgate.destinations.nats.credentials import connect_fields, read_creds, sign_nonce
from headgate.destinations.nats.errors import api_error, server_error
from headgate.destinations.nats.options import Server
from headgate.destinations.nats.receipt import Ledger
from headgate.destinations.nats.streams import StreamInfo, changes, drifts, stream_config
from headgate.model import (
    AuthError,
    CapacityError,
    ConfigError,
    ConnectError,
    DeliveryError,
    DependencyError,
    HeadgateError,
    ProtocolError,
    StateError,
)
from headgate.wire.nats import ApiError

OPTIONS = NatsOptions(stream="S", subjects=("s.>",))
# The user key whose 32 bytes are 0, 1, 2, ...
SEED = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y"


def test_secrets_stay_out_of_the_repr() -> None:
    options = replace(
        OPTIONS, url="nats://me:hidden1@a:1,tls://hidden2@b", password="hidden3", token="hidden4", nkey_seed="hidden5"
    )
    shown = repr(options) + str(options) + repr(options.servers()) + options.address
    assert "hidden" not in shown
    assert "url='a:1,b:4222'" in shown


def test_options_travel_and_serve_as_keys() -> None:
    copy = pickle.loads(pickle.dumps(OPTIONS))
    assert copy == OPTIONS
    assert {OPTIONS: 1}[copy] == 1


def test_the_address_list() -> None:
    options = replace(OPTIONS, url="nats://u%40x:p%3A@h1:4333, h2 ,tls://tok@[::1]:9")
    assert options.servers() == (
        Server("h1", 4333, False, "u@x", "p:"),
        Server("h2", 4222),
        Server("::1", 9, True, token="tok"),
    )


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"url": "http://a"}, "url"),
        ({"url": ""}, "url"),
        ({"url": "nats://:4222"}, "url"),
        ({"url": "nats://a:99999"}, "url"),
        ({"stream": "a.b"}, "stream"),
        ({"stream": ""}, "stream"),
        ({"subjects": ()}, "subjects"),
        ({"subjects": ("a..b",)}, "subjects"),
        ({"inbox_prefix": "a.*"}, "inbox_prefix"),
        ({"storage": "tape"}, "storage"),
        ({"discard": "all"}, "discard"),
        ({"window": 0}, "window"),
        ({"window_bytes": 0}, "window_bytes"),
        ({"replicas": 9}, "replicas"),
        ({"ack_timeout_s": 0.0}, "ack_timeout_s"),
        ({"connect_timeout_s": -1.0}, "connect_timeout_s"),
        ({"max_age_s": -1.0}, "max_age_s"),
        ({"duplicate_window_s": -1.0}, "duplicate_window_s"),
        ({"tls_cert": "x"}, "tls_cert"),
    ],
)
def test_wrong_options_name_the_option(change: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NatsOptions(**({"stream": "S", "subjects": ("s.>",)} | change))  # type: ignore[arg-type]
    assert caught.value.where == name
    assert caught.value.remedy


def test_a_nonce_is_signed_with_the_seed_s_key() -> None:
    public_key, signature = sign_nonce(SEED, "nonce")
    assert public_key == "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
    raw = base64.b32decode(public_key)
    Ed25519PublicKey.from_public_bytes(raw[1:33]).verify(base64.urlsafe_b64decode(signature + "=="), b"nonce")


@pytest.mark.parametrize("seed", ["", "SU", SEED[:-1] + "A", SEED.lower(), "SUé", "A" * 58])
def test_a_wrong_seed_is_refused_and_not_shown(seed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sign_nonce(seed, "nonce")
    assert not seed or seed not in str(caught.value)


def test_a_seed_of_another_kind_is_refused() -> None:
    raw = bytearray(base64.b32decode(SEED + "=" * (-len(SEED) % 8)))
    raw[0], raw[1] = 18 << 3 | 0, 0 << 3  # an account's
    raw[-2:] = binascii.crc_hqx(bytes(raw[:-2]), 0).to_bytes(2, "little")
    with pytest.raises(ConfigError, match="not a user's"):
        sign_nonce(base64.b32encode(raw).decode().rstrip("="), "nonce")


def test_credentials_files(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(
        "-----BEGIN NATS USER JWT-----\neyJ.abc.def\n------END NATS USER JWT------\n\nNKEYs are secret.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    assert read_creds(str(path)) == ("eyJ.abc.def", SEED)
    fields = connect_fields(replace(OPTIONS, creds_file=str(path)), Server("a", 1), "nonce")
    assert fields == {"jwt": "eyJ.abc.def", "sig": sign_nonce(SEED, "nonce")[1]}
    path.write_text("hello")
    with pytest.raises(ConfigError, match="not a NATS credentials file"):
        read_creds(str(path))
    with pytest.raises(ConfigError, match="cannot read"):
        read_creds(str(tmp_path / "absent"))


def test_which_credentials_are_sent() -> None:
    server = Server("a", 1)
    assert connect_fields(OPTIONS, server, "") == {}
    assert connect_fields(replace(OPTIONS, user="u", password="p"), server, "") == {"user": "u", "pass": "p"}
    assert connect_fields(replace(OPTIONS, token="t"), server, "") == {"auth_token": "t"}
    assert connect_fields(replace(OPTIONS, user="u"), Server("a", 1, user="v", password="w"), "") == {
        "user": "v",
        "pass": "w",
    }
    assert set(connect_fields(replace(OPTIONS, nkey_seed=SEED), server, "n")) == {"nkey", "sig"}


@pytest.mark.parametrize(
    ("err_code", "code", "cls"),
    [
        (10059, 404, StateError),
        (10058, 400, StateError),
        (10065, 400, ConfigError),
        (10047, 500, CapacityError),
        (10077, 503, CapacityError),
        (10071, 400, StateError),
        (10039, 503, DependencyError),
        (10008, 503, ConnectError),
        (10167, 429, CapacityError),
        (99999, 503, DeliveryError),
        (99999, 404, StateError),
        (99999, 500, DeliveryError),
    ],
)
def test_api_errors_have_a_kind_and_a_remedy(err_code: int, code: int, cls: type[HeadgateError]) -> None:
    error = api_error(ApiError(code, err_code, "what happened"), "nats a:1")
    assert type(error) is cls
    assert error.remedy
    assert str(err_code) in error.message
    assert "what happened" in error.message


@pytest.mark.parametrize(
    ("text", "cls"),
    [
        ("Authorization Violation", AuthError),
        ("User Authentication Expired", AuthError),
        ('Permissions Violation for Publish to "x"', AuthError),
        ("Slow Consumer", ConnectError),
        ("Stale Connection", ConnectError),
        ("maximum connections exceeded", CapacityError),
        ("Unknown Protocol Operation", ProtocolError),
    ],
)
def test_what_the_server_says_has_a_kind(text: str, cls: type[HeadgateError]) -> None:
    assert type(server_error(text, "nats a:1")) is cls


def test_a_ledger_groups_failures_and_names_every_row_once() -> None:
    ledger = Ledger(rows=6, sent=6)
    ledger.ack("S", 2, 7, duplicate=False)
    ledger.ack("S", 1, 5, duplicate=True)
    for row in (4, 1):
        ledger.fail(CapacityError("full"), 10077, [row])
    ledger.fail(StateError("gone"), 503, [3])
    ledger.fail(StateError("nothing"), 0, [])
    receipt = ledger.receipt()
    assert (receipt.sent, receipt.acked, receipt.duplicates, receipt.last_sequence) == (6, 3, 1, {"S": 7})
    assert [(failure.code, failure.rows) for failure in receipt.failures] == [(10077, (1, 4)), (503, (3,))]
    assert receipt.failed_rows == (1, 3, 4)
    assert not receipt.complete
    with pytest.raises(CapacityError, match="full"):
        receipt.raise_for_failures()
    assert pickle.loads(pickle.dumps(receipt)).failed_rows == (1, 3, 4)
    assert Ledger().receipt().raise_for_failures().complete


def description(**config: object) -> StreamInfo:
    state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0}
    return StreamInfo.parse({"config": stream_config(OPTIONS) | config, "state": state})


def test_a_stream_as_wanted_has_no_drift() -> None:
    assert not list(drifts(description(), OPTIONS))
    assert changes(description(), OPTIONS) == {}
    # Wider than wanted is no reason to act.
    wider = description(subjects=["s.>", "t.>"], duplicate_window=10**15, allow_batched=True)
    assert not list(drifts(wider, OPTIONS))
    assert changes(wider, OPTIONS) == {}


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(
    "config",
    [
        {"max_age": 10**15},
        {"max_bytes": 5},
        {"max_msgs": 5},
        {"discard": "old"},  # without a limit nothing is ever discarded
        {"deny_delete": True},
        {"deny_purge": True},
        {"compression": "s2"},
        {"republish": {"src": ">", "dest": "copy.>"}},
        {"allow_msg_ttl": True},
        {"max_consumers": 3},
    ],
)
def test_what_no_option_sets_and_what_is_harmless_is_left_alone(config: dict[str, object], exclusive: bool) -> None:
    info = description(**config)
    assert not list(drifts(info, OPTIONS, exclusive=exclusive))
    assert changes(info, OPTIONS, exclusive=exclusive) == {}


@pytest.mark.parametrize(
    "config",
    [
        {"storage": "memory"},
        {"num_replicas": 3},
        {"retention": "interest"},
        {"retention": "workqueue"},
        {"no_ack": True},
        {"sealed": True},
        {"mirror": {"name": "X"}},
        {"allow_msg_counter": True},
        {"persist_mode": "async"},
        {"discard": "old", "max_bytes": 5},
    ],
)
def test_drift_is_named(config: dict[str, object]) -> None:
    for exclusive in (False, True):
        (sentence,) = drifts(description(**config), OPTIONS, exclusive=exclusive)
        assert next(iter(config)) in sentence


@pytest.mark.parametrize(
    "config",
    [
        {"max_msgs_per_subject": 1},
        {"sources": [{"name": "X"}]},
        {"subject_transform": {"src": "s.>", "dest": "t.>"}},
        {"allow_rollup_hdrs": True},
        {"subject_delete_marker_ttl": 10**9},
        {"max_msg_size": 1000},
    ],
)
def test_a_stream_of_one_pipeline_loses_moves_and_mixes_nothing(config: dict[str, object]) -> None:
    info = description(**config)
    (sentence,) = drifts(info, OPTIONS, exclusive=True, max_payload=1 << 20)
    assert next(iter(config)) in sentence
    assert not list(drifts(info, OPTIONS, max_payload=1 << 20))


@pytest.mark.parametrize(
    ("option", "setting", "stream_has"),
    [
        ({"max_age_s": 60.0}, {"max_age": 60 * 10**9}, {"max_age": 10**15}),
        ({"max_bytes": 500}, {"max_bytes": 500}, {"max_bytes": -1}),
        ({"max_msgs": 3}, {"max_msgs": 3}, {"max_msgs": 4}),
        ({"discard": "old"}, {"discard": "old"}, {}),
    ],
)
def test_a_lower_limit_is_applied_to_an_own_stream_and_refused_on_a_shared_one(
    option: dict[str, Any], setting: dict[str, object], stream_has: dict[str, object]
) -> None:
    info, options = description(**stream_has), replace(OPTIONS, **option)
    assert not list(drifts(info, options, exclusive=True))
    assert changes(info, options, exclusive=True).items() >= setting.items()
    (sentence,) = drifts(info, options)
    assert next(iter(setting)) in sentence


@pytest.mark.parametrize(
    ("option", "setting", "stream_has"),
    [
        ({"max_age_s": 0.0}, {"max_age": 0}, {"max_age": 10**15}),
        ({"max_bytes": -1}, {"max_bytes": -1}, {"max_bytes": 5}),
        ({"max_msgs": 30}, {"max_msgs": 30}, {"max_msgs": 4}),
        ({"discard": "new"}, {"discard": "new"}, {"discard": "old", "max_msgs": 4}),
    ],
)
def test_a_higher_limit_is_applied(
    option: dict[str, Any], setting: dict[str, object], stream_has: dict[str, object]
) -> None:
    info, options = description(**stream_has), replace(OPTIONS, **option)
    for exclusive in (False, True):
        assert not list(drifts(info, options, exclusive=exclusive))
        assert changes(info, options, exclusive=exclusive) == setting


def test_a_duplicate_window_that_is_set_is_applied_both_ways() -> None:
    for window_s in (1.0, 500.0):
        options = replace(OPTIONS, duplicate_window_s=window_s)
        assert changes(description(duplicate_window=120 * 10**9), options) == {"duplicate_window": window_s * 10**9}
    # Shorter lives take the window along, which the server would refuse otherwise.
    shorter = replace(OPTIONS, max_age_s=60.0)
    assert changes(description(), shorter, exclusive=True)["duplicate_window"] == 60 * 10**9


def test_what_may_be_added_to_a_stream() -> None:
    options = replace(OPTIONS, subjects=("s.>", "t.a"), duplicate_window_s=200)
    info = description(subjects=["s.a", "u.>"])
    assert changes(info, options) == {
        "subjects": ["u.>", "s.>", "t.a"],
        "duplicate_window": 200 * 10**9,
    }


def test_a_duplicate_window_never_outlives_the_messages() -> None:
    assert stream_config(replace(OPTIONS, max_age_s=60))["duplicate_window"] == 60 * 10**9


def test_a_malformed_description_is_a_protocol_error() -> None:
    answers: tuple[dict[str, object], ...] = ({}, {"config": {}, "state": {}}, {"config": [], "state": {}})
    for answer in answers:
        with pytest.raises(ProtocolError):
            StreamInfo.parse(answer)


def test_exports_are_pinned() -> None:
    assert sorted(nats.__all__, key=str.lower) == sorted(set(nats.__all__), key=str.lower)
    assert all(hasattr(nats, name) for name in nats.__all__)
