"""The blocks of code in the documents, and a terminal that runs those of commands as a reader would.

A block of commands (`sh`, or `console` with its output) is run by a test that asks for it by page and first command,
`block("docs/relay.md", "headgate relay simulate")`, or has a reason above it why no test does:

    <!-- not run: it follows hosts of the internet -->
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

__all__ = ["PAGES", "ROOT", "Block", "Terminal", "block", "blocks", "wait_until"]

ROOT = Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
    if "node_modules" not in path.parts
]
_FENCE = re.compile(r"(?:^<!-- not run: (.*?) -->\n)?^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(^|\s)#\s.*$", re.MULTILINE)
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code: what it is written in, and why it is not run, if it is not."""

    page: str
    language: str
    text: str
    not_run: str

    @property
    def commands(self) -> list[str]:
        """Return the commands, without comments and, of a session, without what they print."""
        text = self.text
        if self.language == "console":
            text = "".join(line[2:] + "\n" for line in text.splitlines() if line.startswith("$ "))
        lines = _COMMENT.sub("", text.replace("\\\n", " ")).splitlines()
        return [" ".join(line.replace(".venv/bin/", "").split()) for line in lines if line.strip()]

    @property
    def output(self) -> list[str]:
        """Return the lines of a session that are no commands."""
        return [line for line in self.text.splitlines() if not line.startswith("$ ")]


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, in their order."""
    for reason, language, text in _FENCE.findall((ROOT / page).read_text(encoding="utf-8")):
        yield Block(page, language, text, " ".join(reason.split()))


def block(page: str, first: str) -> Block:
    """Return the block of commands whose first command is `first`, or the only one whose first begins with it."""
    shown = [each for each in blocks(page) if each.language in ("sh", "console")]
    exact = [each for each in shown if each.commands[0] == first]
    (found,) = exact or [each for each in shown if each.commands[0].startswith(first)]
    return found


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does, with patience."""
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


@dataclass
class Terminal:
    """Runs commands in a directory. `replaced` turns what is an example in them into what is there."""

    directory: Path
    replaced: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    running: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self.running:
            self.interrupt()

    def interrupt(self) -> bool:
        """Press Ctrl-C where something was started last, and wait for its end."""
        _, process = self.running.pop()
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return True

    def run(self, command: str) -> str:
        """Run a command that ends by itself, and well; return what it prints. What it asks is answered with yes."""
        done = subprocess.run(
            self._call(command), capture_output=True, text=True, timeout=4 * _PATIENCE_S, check=False,
            cwd=self.directory, env=self._environ(), input="y\n",
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> Path:
        """Start a command that runs until Ctrl-C; return the file with what it prints."""
        output = self.directory / f"{command.replace('/', ' ')[:60]}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._call(command), stdout=file, stderr=file, cwd=self.directory, env=self._environ(),
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.running.append((command, process))
        return output

    def play(self, played: Block, until_ctrl_c: Mapping[str, Callable[[str], bool]] | None = None) -> str:
        """Run a block line by line; return what the commands that end have printed.

        Those that begin with a key of `until_ctrl_c` are left running, and the next line waits until the function is
        true of what they have printed.
        """
        printed = []
        for command in played.commands:
            ready = next((ready for key, ready in (until_ctrl_c or {}).items() if command.startswith(key)), None)
            if ready is None:
                printed.append(self.run(command))
                continue
            output = self.start(command)
            wait_until(lambda ready=ready, output=output: ready(output.read_text()), command)  # type: ignore[misc]
        return "".join(printed)

    def _call(self, command: str) -> list[str]:
        for example, real in self.replaced.items():
            command = command.replace(example, real)
        return ["bash", "-o", "pipefail", "-c", command]

    def _environ(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "200", **self.environ}
