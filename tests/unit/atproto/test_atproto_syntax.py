"""Names: what is one, what is none, and TIDs as a clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.wire.atproto import AtprotoError, Reason, next_tid, parse_cid, syntax, tid_of, tid_us
from tests.unit.atproto.atproto_names import INVALID, VALID

CHECKS: dict[str, Callable[[str], bool]] = {name: getattr(syntax, f"is_{name}") for name in VALID}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in VALID.items() for text in texts])
def test_it_is_a_name(kind: str, text: str) -> None:
    assert CHECKS[kind](text)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in INVALID.items() for text in texts])
def test_it_is_no_name(kind: str, text: str) -> None:
    assert not CHECKS[kind](text)


@pytest.mark.parametrize(
    ("kind", "before", "letters", "behind"),
    [
        ("did", "did:method:", 2037, ""),
        ("nsid", "com.", 63, ".foo"),
        ("nsid", "com.example.", 63, ""),
        ("nsid", "com." + "middle." * 40, 33, ""),
        ("record_key", "", 512, ""),
        ("handle", "", 63, ".test"),
        ("handle", "a." * 120, 13, ""),
        ("cid_text", "", 256, ""),
        ("datetime", "1985-04-12T23:20:50.", 20, "Z"),
    ],
    ids=["did", "label of nsid", "name of nsid", "nsid", "record key", "label of handle", "handle", "cid", "datetime"],
)
def test_names_have_a_longest_form(kind: str, before: str, letters: int, behind: str) -> None:
    letter = "1" if kind == "datetime" else "o"
    assert CHECKS[kind](before + letter * letters + behind)
    assert not CHECKS[kind](before + letter * (letters + 1) + behind)


@pytest.mark.parametrize("kind", CHECKS)
def test_nothing_and_line_ends_are_no_names(kind: str) -> None:
    assert not CHECKS[kind]("")
    assert not CHECKS[kind](VALID[kind][0] + "\n")


def test_hostile_names_take_no_time() -> None:
    for text in ("a." * 200_000, "a-" * 200_000, "did:a:" + "%" * 400_000, "at://" + "a" * 400_000, "1" * 400_000):
        assert not any(check(text) for check in CHECKS.values())


@pytest.mark.parametrize("path", ["app.bsky.feed.post/3jzfcijpj2z2a", "a.b.c/self", "a.b.c/lang:en", "a.b.c/..."])
def test_a_path_is_a_collection_and_a_key(path: str) -> None:
    assert syntax.is_path(path)


@pytest.mark.parametrize(
    "path", ["", "/", "a.b.c", "a.b.c/", "/self", "a.b/self", "a.b.c/x/y", "a.b.c/.", "a.b.c/..", "a.b.c/\xe9"]
)
def test_other_things_are_no_path(path: str) -> None:
    assert not syntax.is_path(path)
    with pytest.raises(AtprotoError) as caught:
        syntax.check_path(path)
    assert caught.value.reason is Reason.BAD_SYNTAX


def test_a_tid_is_a_moment() -> None:
    assert tid_of(0) == "2222222222222"
    assert tid_us("3jzfcijpj2z2a") == 1_688_137_381_887_007
    assert tid_of(1_688_137_381_887_007, 6) == "3jzfcijpj2z2a"
    assert tid_us("bzzzzzzzzzzzz") == 2**53 - 1


@pytest.mark.parametrize(("us", "clock_id"), [(-1, 0), (2**53, 0), (0, -1), (0, 1024)])
def test_a_tid_has_its_limits(us: int, clock_id: int) -> None:
    with pytest.raises(ValueError, match="53 bits"):
        tid_of(us, clock_id)


def test_the_next_tid_is_later_whatever_the_clock_says() -> None:
    assert next_tid(None, 5) == tid_of(5)
    assert next_tid(tid_of(5), 9) == tid_of(9)
    assert next_tid(tid_of(5), 3) == tid_of(6)
    assert next_tid(tid_of(5, 1023), 5) > tid_of(5, 1023)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabw",
        "Bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq",
        "zafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq",
        "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esab1q",
        "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabw\xe9",
        "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwr",
        "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
    ],
    ids=["nothing", "short", "capital", "base", "letter", "accent", "spare bits", "dag-pb"],
)
def test_a_cid_of_a_repository_has_one_form(text: str) -> None:
    with pytest.raises(AtprotoError) as caught:
        parse_cid(text)
    assert caught.value.reason is Reason.BAD_SYNTAX
