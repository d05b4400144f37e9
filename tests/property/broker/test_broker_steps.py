"""The order of migrations: by version as numbers, then by number, whatever the text says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from headgate.broker import migrations

NUMBERS = st.tuples(*[st.integers(0, 120)] * 3, st.integers(0, 99), st.sampled_from(["pre", "post"]))


@given(st.sets(NUMBERS, max_size=12))
def test_steps_come_in_the_order_of_their_versions(steps: set[tuple[int, int, int, int, str]]) -> None:
    unique = {step[:4]: step for step in steps}.values()
    with TemporaryDirectory() as directory, patch("importlib.resources.files", lambda _: Path(directory)):
        (sql := Path(directory, "sql")).mkdir()
        (sql / "install.sql").touch()
        for major, minor, patch_level, number, phase in unique:
            (sql / f"{major}.{minor}.{patch_level}_{number:02}_{phase}_x.sql").touch()
        expected = [f"{a}.{b}.{c}_{n:02}_{phase}_x" for a, b, c, n, phase in sorted(unique)]
        assert migrations() == expected
