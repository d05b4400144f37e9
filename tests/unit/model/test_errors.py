"""Errors keep their kind, policy and remedy wherever they travel."""

from __future__ import annotations

import pickle
import traceback

import pytest

from headgate.model import (
    AuthError,
    ConfigError,
    ConnectError,
    HeadgateError,
    InternalError,
    Kind,
    Retry,
)


def test_every_kind_has_a_class_a_policy_and_an_exit_code() -> None:
    classes = {cls.kind: cls for cls in HeadgateError.__subclasses__() if cls.__module__ == "headgate.model.errors"}
    assert set(classes) == set(Kind)
    for cls in classes.values():
        error = cls("x")
        assert isinstance(error.retry, Retry)
        assert 2 <= error.exit_code <= 70


def test_an_error_survives_pickling() -> None:
    error = ConnectError("no answer", remedy="start it", where="nats://h:1")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ConnectError
    assert copy.as_dict() == error.as_dict()


def test_an_error_survives_a_traceback_flattened_to_text() -> None:
    try:
        raise AuthError('refused "x"\nsecond line', remedy="use a password", where="nats")
    except AuthError as error:
        text = "".join(traceback.format_exception(error))
    found = HeadgateError.from_text(f"[STREAM_FAILED] before\n{text}\n SQLSTATE: 38000\n\tat java.lang.Thread")
    assert type(found) is AuthError
    assert (found.message, found.remedy, found.where) == ('refused "x"\nsecond line', "use a password", "nats")


@pytest.mark.parametrize("text", ["", "nothing here", "headgate-error: {", 'headgate-error: {"kind": "nope"}'])
def test_text_without_an_error_gives_none(text: str) -> None:
    assert HeadgateError.from_text(text) is None


def test_the_inner_place_wins() -> None:
    assert str(ConfigError("bad", where="line 3").at("file")) == "line 3: bad"
    assert str(ConfigError("bad").at("file")) == "file: bad"


def test_a_place_added_later_reaches_the_text() -> None:
    error = InternalError("bad").at("pipelines.x")
    found = HeadgateError.from_text("\n".join(error.__notes__))
    assert found is not None
    assert found.where == "pipelines.x"
