"""Spark's reports become one line with a remedy."""

from __future__ import annotations

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
    assert "The value 'x'" in found.message
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
