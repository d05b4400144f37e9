"""The scanner agrees with the real parser about where keys are."""

from __future__ import annotations

import tomllib
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from headgate.config import InvalidConfigError, parse
from headgate.config.places import key_lines

names = st.from_regex(r"[a-z][a-z0-9_-]{0,6}", fullmatch=True)
values = st.sampled_from(
    ['"text"', "1", "[1, 2]", "[\n  1,\n  # [ in a comment\n  2,\n]", "'''a\n[b]\nc = 1'''", '"#["']
)


@given(st.dictionaries(names, st.dictionaries(names, values, min_size=1, max_size=4), max_size=4))
def test_every_key_is_found_on_its_line(tables: dict[str, dict[str, str]]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        expected[(table,)] = len(lines)
        for key, value in keys.items():
            expected[(table, key)] = len(lines) + 1
            lines.extend(f"{key} = {value}".split("\n"))
    text = "\n".join(lines)
    tomllib.loads(text)
    assert key_lines(text) == expected


@given(st.text(max_size=200))
def test_any_text_is_accepted_or_refused_with_our_error(text: str) -> None:
    with suppress(InvalidConfigError):
        parse(text, environ={})
