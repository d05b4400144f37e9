"""What `kafka-topics.sh` of a Kafka distribution does, as far as librdkafka's suite calls it: no Java is needed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

_TIMEOUT_S = 20


def install(directory: Path) -> Path:
    """A directory that can be named as the place of a Kafka distribution."""
    root = Path(__file__).resolve().parent.parent
    for name in ("kafka-topics", "kafka-acls"):
        script = directory / "bin" / f"{name}.sh"
        script.parent.mkdir(parents=True, exist_ok=True)
        module = f"conformance.{name.replace('-', '_')}"
        script.write_text(f'#!/bin/sh\ncd "{root}" && exec "{sys.executable}" -m {module} "$@"\n')
        script.chmod(0o755)
    return directory


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", required=True)
    for action in ("--create", "--alter", "--delete"):
        parser.add_argument(action, action="store_true")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--replication-factor", type=int, default=1)
    parser.add_argument("--config", action="append", default=[])
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.bootstrap_server})
    if options.create:
        config = dict(each.split("=", 1) for each in options.config)
        done = admin.create_topics([NewTopic(options.topic, options.partitions, config=config)])
    elif options.alter:
        done = admin.create_partitions([NewPartitions(options.topic, options.partitions)])
    else:
        done = admin.delete_topics([options.topic])
    done[options.topic].result(_TIMEOUT_S)


if __name__ == "__main__":
    main()
