"""kcat: an old librdkafka on the command line, as people try a broker."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.gateway.clients import Client, Message

__all__ = ["Kcat"]

_TIMEOUT_S = 30.0


class Kcat(Client):
    name = "kcat"
    null_headers = False  # its JSON shows one as an empty text

    def produce(
        self, topic: str, messages: Sequence[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        """It sets no timestamps, and headers and partition for a whole run only."""
        runs: dict[tuple[Any, ...], list[Message]] = defaultdict(list)
        for each in messages:
            runs[(each.partition, each.headers)].append(each)
        for (partition, headers), run in runs.items():
            lines = b"".join((each.key or b"") + b"\t" + (each.value or b"") + b"\n" for each in run)
            given = [f"-H{key}={(value or b'').decode()}" for key, value in headers]
            settings = ["-z", codec] if codec != "none" else []
            settings += ["-X", "enable.idempotence=true"] if idempotent else []
            settings += ["-X", "message.max.bytes=20000000", "-X", "message.timeout.ms=20000"]
            self._run("-P", "-t", topic, "-p", str(partition), "-K", "\t", "-Z", *settings, *given, given_lines=lines)

    def consume(self, topic: str, partitions: int, count: int) -> list[Message]:
        shown = self._run("-C", "-t", topic, "-o", "beginning", "-e", "-J", "-q")
        return sorted(map(_message, shown.splitlines()), key=lambda each: (each.partition, each.offset))[:count]

    def consume_group(self, topic: str, group: str, count: int) -> list[Message]:
        shown = self._run("-q", "-J", "-c", str(count), "-X", "auto.offset.reset=earliest", "-G", group, topic)
        return [_message(line) for line in shown.splitlines()]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        shown = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        offset = int(shown.rpartition("offset")[2])
        return offset if offset >= 0 else None

    def topics(self) -> set[str]:
        return {each["topic"] for each in json.loads(self._run("-L", "-J"))["topics"]}

    def _run(self, *arguments: str, given_lines: bytes = b"") -> bytes:
        command = ["kcat", "-b", self.servers, *arguments]
        done = subprocess.run(command, input=given_lines, capture_output=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace"))
        return done.stdout


def _message(line: bytes) -> Message:
    shown = json.loads(line)
    pairs = shown.get("headers", [])
    headers = tuple((key, value.encode()) for key, value in zip(pairs[::2], pairs[1::2], strict=True))
    value, key = shown["payload"], shown["key"]
    return Message(
        None if value is None else value.encode(),
        None if key is None else key.encode(),
        headers,
        shown["partition"],
        shown["ts"],
        shown["offset"],
    )
