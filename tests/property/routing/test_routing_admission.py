"""Names and lists: hostile text never passes for a name, and the sets of a list say what its entries say one by one."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from headgate.config.routing import AdmissionSection, DestinationPattern
from headgate.model.address import Address
from headgate.pipeline.routing.admission import Admission, Mode, Patterns, Reason

SEGMENT = string.ascii_letters + string.digits + "_-"


def is_name(text: str) -> bool:
    return len(text) <= 249 and all(part and set(part) <= set(SEGMENT) for part in text.split("."))


@given(st.text(max_size=300) | st.text("ab._-*> \n", max_size=12), st.text("ab.*> ", max_size=6))
@example("a" * 249, "")
@example("a" * 250, "")
@example("a\n", "")
@example("a.", "s")
@example("*", "")
@example("x", "ä")
def test_only_names_are_admitted(topic: str, stream: str) -> None:
    valid = is_name(topic) and (not stream or is_name(stream))
    assert Admission().refusal(Address(stream, topic)) == (None if valid else Reason.INVALID_NAME)


segments = st.sampled_from(["*", "a", "b", "c"])
entries = st.lists(st.tuples(segments, segments).filter(lambda entry: entry != ("*", "*")), max_size=5)
wanted = st.builds(Address, st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["a", "b", "c", "d"]))


@given(entries, wanted)
def test_a_list_says_what_its_entries_say(listed: list[tuple[str, str]], each: Address) -> None:
    matches = any(s in ("*", each.stream) and t in ("*", each.topic) for s, t in listed)
    assert (each in Patterns.of(listed)) == matches


@given(st.sampled_from(["open", "allowlist", "denylist"]), entries, entries, wanted)
def test_the_mode_says_which_list_counts(
    mode: Mode, allowed: list[tuple[str, str]], denied: list[tuple[str, str]], each: Address
) -> None:
    refusal = Admission(mode, Patterns.of(allowed), Patterns.of(denied)).refusal(each)
    if mode == "allowlist":
        assert refusal == (None if each in Patterns.of(allowed) else Reason.UNKNOWN)
    elif mode == "denylist":
        assert refusal == (Reason.DENYLIST if each in Patterns.of(denied) else None)
    else:
        assert refusal is None


@given(st.text(max_size=10))
@example("*")
@example("a*")
@example("a?")
@example("a\n")
@example("")
def test_the_grammar_of_a_list(text: str) -> None:
    """A segment is a name or `*` as a whole: no globs and no patterns."""
    valid = text == "*" or (bool(text) and set(text) <= set(SEGMENT + "."))
    if valid:
        assert DestinationPattern(stream="s", topic=text).topic == text
    else:
        with pytest.raises(ValidationError):
            DestinationPattern(stream="s", topic=text)


def test_lists_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match="matches everything"):
        DestinationPattern(stream="*", topic="*")
    for mode in ("allowlist", "denylist"):
        with pytest.raises(ValidationError, match=mode):
            AdmissionSection.model_validate({"mode": mode})
    literal = [{"stream": "s", "topic": f"t{number}"} for number in range(3)]
    with pytest.raises(ValidationError, match="names 3 destinations, max_destinations is 2"):
        AdmissionSection.model_validate({"mode": "allowlist", "allowlist": literal, "max_destinations": 2})
    wide = [*literal[:2], {"stream": "s"}]
    assert AdmissionSection.model_validate({"mode": "allowlist", "allowlist": wide, "max_destinations": 2})
