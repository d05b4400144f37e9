"""Writes numbered messages to a topic until Ctrl-C. It is told one address, that of the gateway, and keeps running.

python producer.py 127.0.0.1:9092 orders
"""

from __future__ import annotations

import signal
import sys
import threading

from confluent_kafka import KafkaError, Message, Producer


def main(servers: str, topic: str) -> int:
    """Return 1 if a message could not be delivered."""
    over = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: over.set())
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    number = 0
    while not over.wait(0.005):
        producer.produce(topic, str(number).encode(), f"customer-{number % 20}".encode(), on_delivery=delivered)
        producer.poll(0)
        number += 1
        if number % 200 == 0:
            print(f"sent {number}", flush=True)
    left = producer.flush(60)
    print(f"sent {number} in all, {len(failed) + left} failed", *failed[:1], flush=True)
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
