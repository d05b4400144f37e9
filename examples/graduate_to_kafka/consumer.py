"""Reads the messages of `producer.py` as a member of a group until Ctrl-C, and says what came twice or out of order.

python consumer.py 127.0.0.1:9092 orders billing
"""

from __future__ import annotations

import signal
import sys
import threading

from confluent_kafka import Consumer, KafkaException

STATISTICS_S = 1.0


def main(servers: str, topic: str, group: str) -> int:
    """Return 1 if a message came twice, or before one of the same key that was sent earlier."""
    over = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: over.set())
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    newest: dict[bytes, int] = {}
    count = wrong = 0
    while not over.is_set():
        message = consumer.poll(STATISTICS_S)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if not error.retriable():
                print(f"the client says: {error}", flush=True)
            continue
        key, number = message.key() or b"", int(message.value() or b"-1")
        if number <= newest.get(key, -1):
            print(f"{number} came after {newest[key]}", flush=True)
            wrong += 1
        newest[key] = number
        count += 1
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException as problem:
            print(f"not committed: {problem}", flush=True)
        print(number, flush=True)
    consumer.close()
    print(f"read {count} in all, {wrong} wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
