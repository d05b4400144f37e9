"""Traces are exported as OpenTelemetry's own variables say, in a process of their own: its provider is for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from opentelemetry import trace
from headgate.control.tracing import exported_traces
with exported_traces():
    trace.get_tracer("t").start_span("a-span").end()
print("ended")
"""


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_what_is_left_is_sent_at_the_end() -> None:
    done = run(OTEL_TRACES_EXPORTER="console")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index('"name": "a-span"') < done.stdout.index("ended")
    assert '"service.name": "headgate"' in done.stdout
    named = run(OTEL_TRACES_EXPORTER="console", OTEL_SERVICE_NAME="orders", OTEL_RESOURCE_ATTRIBUTES="team=a")
    assert '"service.name": "orders"' in named.stdout
    assert '"team": "a"' in named.stdout


@pytest.mark.parametrize("value", ["", "none", " , "])
def test_nobody_who_does_not_ask_gets_any(value: str) -> None:
    done = run(OTEL_TRACES_EXPORTER=value)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_an_exporter_that_is_not_installed_is_named_with_the_remedy() -> None:
    done = run(OTEL_TRACES_EXPORTER="otlp-of-nobody")
    assert done.returncode != 0
    assert "no exporter of traces is called 'otlp-of-nobody'; installed are: " in done.stderr
    assert "pip install opentelemetry-exporter-otlp" in done.stderr
