"""kafkajs, in a process of Node's for every call."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gateway.clients import Client, Message

__all__ = ["KafkaJs"]

_TIMEOUT_S = 40.0
_SCRIPT = Path(__file__).parent / "node.mjs"


class KafkaJs(Client):
    name = "kafkajs"
    codecs = ("none", "gzip")  # the others are packages of their own
    null_headers = False

    def __init__(self, servers: str, directory: Path) -> None:
        super().__init__(servers)
        self._directory = directory

    @staticmethod
    def install(directory: Path) -> str | None:
        """Fetch the package; says why not, if it cannot be had."""
        if not shutil.which("node") or not shutil.which("npm"):
            return "needs Node.js: node and npm are not on the PATH"
        shutil.copy(_SCRIPT, directory / _SCRIPT.name)
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--ignore-scripts",
            "kafkajs@2.2.4",
        ]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=100, check=False)
        return f"npm cannot install kafkajs: {done.stderr[-300:]}" if done.returncode else None

    def produce(
        self, topic: str, messages: Sequence[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        sent = [
            {
                "key": _text(each.key),
                "value": _text(each.value),
                "partition": each.partition,
                "headers": [[key, _text(value)] for key, value in each.headers],
                "timestamp": each.timestamp,
            }
            for each in messages
        ]
        self._call("produce", topic=topic, messages=sent, codec=codec, idempotent=idempotent)

    def consume(self, topic: str, partitions: int, count: int) -> list[Message]:
        """It cannot read without a group."""
        group = f"once-{uuid.uuid4().hex}"
        found = self._call("consume", topic=topic, group=group, count=count, commit=False)
        return sorted(map(_message, found), key=lambda each: (each.partition, each.offset))

    def consume_group(self, topic: str, group: str, count: int) -> list[Message]:
        return [_message(each) for each in self._call("consume", topic=topic, group=group, count=count, commit=True)]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """Where there is none, kafkajs says the end."""
        offset: int = self._call("offsetAt", topic=topic, partition=partition, timestamp=timestamp)
        end: int = self._call("latest", topic=topic, partition=partition)
        return offset if 0 <= offset < end else None

    def topics(self) -> set[str]:
        return set(self._call("topics"))

    def _call(self, command: str, **request: Any) -> Any:
        text = json.dumps({"command": command, "servers": self.servers, **request})
        done = subprocess.run(
            ["node", _SCRIPT.name],
            cwd=self._directory,
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _message(shown: dict[str, Any]) -> Message:
    headers = tuple((key, _bytes(value)) for key, value in shown["headers"])
    return Message(
        _bytes(shown["value"]),
        _bytes(shown["key"]),
        headers,
        shown["partition"],
        shown["timestamp"],
        shown["offset"],
    )
