"""Spark's reports become one line with a remedy, and without the value of a row."""

from __future__ import annotations

import pytest

from headgate.model import ConnectError, DataError, InternalError, Retry
from headgate.pipeline.failures import from_spark, short


def test_our_own_error_is_found_inside() -> None:
    inner = ConnectError("no server", remedy="start it", where="nats")
    found = from_spark(RuntimeError(f"[STREAM_FAILED] x\n{inner.to_text()}\n\tat java.lang.Thread.run"))
    assert found.as_dict() == inner.as_dict()


def test_a_bad_value_needs_somebody_to_act() -> None:
    text = "[STREAM_FAILED] Query\n[CAST_INVALID_INPUT] The value 'x' cannot be cast to BIGINT. SQLSTATE: 22018"
    found = from_spark(RuntimeError(text))
    assert isinstance(found, DataError)
    assert "CAST_INVALID_INPUT" in found.message
    assert "'x'" not in found.message
    assert found.retry is Retry.MANUAL


def test_anything_else_is_tried_again_and_shows_no_java() -> None:
    text = (
        "[STREAM_FAILED] Query failed\nTraceback\n  File x\npkg.mod.ValueError: odd\n\tat java.lang.Thread.run(T.java)"
    )
    found = from_spark(RuntimeError(text))
    assert isinstance(found, InternalError)
    assert "ValueError: odd" in found.message
    assert "java" not in found.message


def test_short_drops_tags_and_state() -> None:
    assert short(RuntimeError("[A_B.C] Column `x` is odd. SQLSTATE: 42703; line 1\nplan")) == "Column `x` is odd."


TAIL = "because it is malformed. Correct the value as per the syntax. Use `try_cast`. SQLSTATE: 22018\n== SQL ==\n"


@pytest.mark.parametrize(
    "value", ["rowvalue", "row'value", "row\nvalue", '" of the type "x', "[FAKE] SQLSTATE: 22000 value", ""]
)
@pytest.mark.parametrize("around", ["", "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "])
def test_the_value_is_left_out_and_the_types_are_told(value: str, around: str) -> None:
    text = f'{around}[CAST_INVALID_INPUT] The value \'{value}\' of the type "STRING" cannot be cast to "INT" {TAIL}'
    told = from_spark(RuntimeError(text))
    assert isinstance(told, DataError)
    assert "CAST_INVALID_INPUT" in told.message
    assert not value or value not in told.message.replace("a row's value", "")
    if "SQLSTATE" not in value:
        assert '"STRING" cannot be cast to "INT"' in told.message


def test_other_conditions_are_named() -> None:
    told = from_spark(RuntimeError("[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012"))
    assert told.message == "an expression cannot take a row's value: DIVIDE_BY_ZERO"


def test_what_somebody_raises_is_their_own_text() -> None:
    told = from_spark(RuntimeError("[USER_RAISED_EXCEPTION] orders need a kind SQLSTATE: P0001"))
    assert told.message == "an expression cannot take a row's value: orders need a kind"
