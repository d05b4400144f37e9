"""Requests for snapshots over NATS, answered at once; and what the tasks tell of their progress.

Several bridges may listen on one server. Each answers only who names its stream of changes (`cdc_stream`), and its own
tables at once; a table that it does not have it refuses a moment later, so that one which has it is heard first.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any, Protocol, Self

from headgate.destinations.nats import Connection, NatsOptions
from headgate.model import ConfigError, ConnectError, DataError, HeadgateError
from headgate.snapshots.jobs import Job
from headgate.wire.nats import Msg, encode_pub, encode_sub

__all__ = ["Mentions", "RequestListener", "progress_subject"]

_log = logging.getLogger(__name__)

_REQUESTS = "snapshot.request"
_PROGRESS = "snapshot.progress"
_REQUESTS_SID, _PROGRESS_SID = 2, 3
_REFUSE_AFTER_S = 0.25
_WAIT_S, _IDLE_S = 0.1, 0.3
_SEND_S = 5.0
_BACKOFF_S = 1.0
_MAX_REQUEST_BYTES = 4096
_OPTIONS = {"cdc_stream": "", "method": "", "chunk_rows": 0}.keys()


def progress_subject(job_id: str) -> str:
    """Where tasks tell how far they are, for whoever listens."""
    return f"{_PROGRESS}.{job_id}"


class Snapshots(Protocol):
    """What answers requests for snapshots: the maker of snapshots."""

    def serves(self, cdc_stream: str | None) -> bool: ...

    @property
    def knows_tables(self) -> bool: ...

    def table_of(self, tokens: tuple[str, ...]) -> tuple[str, str] | None: ...

    def request(self, schema: str, table: str, method: str = "", chunk_rows: int = 0) -> tuple[Job, bool]: ...

    def answer(self, job: Job, *, shared: bool) -> dict[str, Any]: ...

    def progress(self, job_id: str, told: dict[str, int]) -> None: ...


class Mentions:
    """Messages that nobody acknowledges and nobody keeps."""

    def __init__(self, options: NatsOptions) -> None:
        self._connection = Connection.open(options)

    def say(self, subject: str, payload: bytes, reply: str = "") -> None:
        frame = memoryview(encode_pub(subject, payload, reply))
        self._connection.send(frame, timeout_s=_SEND_S, on_data=self._hear)

    def _hear(self, data: bytes) -> None:
        for _ in self._connection.messages(data):  # only the server's own questions, which this answers
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class RequestListener:
    """A thread with a connection of its own, which it makes again for ever."""

    def __init__(self, options: NatsOptions, snapshots: Snapshots) -> None:
        self._options = options
        self._snapshots = snapshots
        self._stop = threading.Event()
        self.listening = threading.Event()
        self._refusals: list[tuple[float, str, dict[str, Any]]] = []  # when to say it, to whom, and what
        self._thread = threading.Thread(target=self._run, name="snapshot requests", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_SEND_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with Connection.open(self._options) as connection:
                    self._listen(connection)
            except Exception as error:  # this thread must not end: nobody else would hear requests
                level = logging.INFO if isinstance(error, HeadgateError) else logging.ERROR
                _log.log(level, "requests for snapshots are not heard: %s", error)
                self.listening.clear()
                self._stop.wait(_BACKOFF_S)

    def _listen(self, connection: Connection) -> None:
        arrived: list[Msg] = []
        subscriptions = encode_sub(f"{_REQUESTS}.>", _REQUESTS_SID) + encode_sub(f"{_PROGRESS}.*", _PROGRESS_SID)

        def send(frame: bytes) -> None:
            view = memoryview(frame)
            connection.send(view, timeout_s=_SEND_S, on_data=lambda data: arrived.extend(connection.messages(data)))

        send(subscriptions)
        connection.ping(_SEND_S)
        self.listening.set()
        while not self._stop.is_set():
            arrived.extend(connection.messages(connection.receive(_WAIT_S if self._refusals else _IDLE_S)))
            taken, arrived[:] = list(arrived), []
            for message in taken:
                self._take(message, send)
            self._refuse_due(send)

    def _take(self, message: Msg, send: Any) -> None:
        if message.sid == _PROGRESS_SID:
            self._note_progress(message)
            return
        name = message.subject.removeprefix(f"{_REQUESTS}.")
        options, error = _options(message.payload)
        if not self._snapshots.serves(options.pop("cdc_stream", None)):
            return
        table = self._snapshots.table_of(tuple(name.split(".")))
        if table is None:
            reason = _unknown(name) if self._snapshots.knows_tables else _just_started()
            self._refusals.append((time.monotonic() + _REFUSE_AFTER_S, message.reply, _refusal(reason)))
            return
        try:
            if error is not None:
                raise error
            job, shared = self._snapshots.request(*table, **options)
            answer = self._snapshots.answer(job, shared=shared)
        except HeadgateError as refused:
            answer = _refusal(refused)
        if message.reply:
            send(encode_pub(message.reply, json.dumps(answer).encode()))

    def _refuse_due(self, send: Any) -> None:
        due = [each for each in self._refusals if each[0] <= time.monotonic()]
        self._refusals = [each for each in self._refusals if each not in due]
        for _, reply, answer in due:
            if reply:
                send(encode_pub(reply, json.dumps(answer).encode()))

    def _note_progress(self, message: Msg) -> None:
        try:
            told = json.loads(message.payload)
        except ValueError:
            return
        if isinstance(told, dict) and all(isinstance(value, int) for value in told.values()):
            self._snapshots.progress(message.subject.rpartition(".")[2], told)


def _options(data: bytes) -> tuple[dict[str, Any], DataError | None]:
    """The options of a request, and what is wrong with them."""
    if not data:
        return {}, None
    try:
        options = json.loads(data[:_MAX_REQUEST_BYTES])
    except (ValueError, RecursionError):
        options = None
    if isinstance(options, dict) and options.keys() <= _OPTIONS and isinstance(options.get("cdc_stream", ""), str):
        return options, None
    error = DataError(
        "a request's payload is neither empty nor a JSON object of options", remedy=f"options: {', '.join(_OPTIONS)}"
    )
    stream = options.get("cdc_stream") if isinstance(options, dict) else None
    return {"cdc_stream": stream} if isinstance(stream, str) else {}, error


def _refusal(error: HeadgateError) -> dict[str, Any]:
    fields = error.as_dict()
    return {"accepted": False, "error": {name: fields[name] for name in ("kind", "message", "remedy")}}


def _unknown(name: str) -> ConfigError:
    return ConfigError(
        f"no bridge here publishes a table {name}",
        remedy="check the name, and that the table is in the bridge's publication",
    )


def _just_started() -> ConnectError:
    """Another answer than that there is no such table: who asks goes on asking."""
    return ConnectError("the bridge has just started, and does not know its tables yet", remedy="ask again in a moment")
