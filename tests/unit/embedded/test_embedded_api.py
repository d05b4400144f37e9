"""The public surface of `headgate.embedded`, pinned."""

from __future__ import annotations

import headgate.embedded


def test_exports() -> None:
    assert headgate.embedded.__all__ == [
        "Endpoints",
        "JavaRuntime",
        "NatsServer",
        "PostgresServer",
        "Stack",
        "find_java",
    ]
    assert all(hasattr(headgate.embedded, name) for name in headgate.embedded.__all__)
