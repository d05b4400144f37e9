"""What `kafka-acls.sh` of a Kafka distribution does, as far as librdkafka's suite calls it: no Java is needed."""

from __future__ import annotations

import argparse
from typing import Any

from confluent_kafka import admin as untyped

_TIMEOUT_S = 20
kafka: Any = untyped  # its stubs leave out most names


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", required=True)
    for action in ("--add", "--remove", "--force"):
        parser.add_argument(action, action="store_true")
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--topic", required=True)
    for permission in ("allow", "deny"):
        parser.add_argument(f"--{permission}-principal", action="append", default=[])
        parser.add_argument(f"--{permission}-host", default="*")
    options = parser.parse_args()
    admin = kafka.AdminClient({"bootstrap.servers": options.bootstrap_server})
    bindings = [
        (kafka.AclBindingFilter if options.remove else kafka.AclBinding)(
            *(kafka.ResourceType.TOPIC, options.topic, kafka.ResourcePatternType.LITERAL, principal, host),
            *(kafka.AclOperation[operation.upper()], permission),
        )
        for operation in options.operation
        for permission, principals, host in (
            (kafka.AclPermissionType.ALLOW, options.allow_principal, options.allow_host),
            (kafka.AclPermissionType.DENY, options.deny_principal, options.deny_host),
        )
        for principal in principals
    ]
    done = admin.delete_acls(bindings) if options.remove else admin.create_acls(bindings)
    for each in done.values():
        each.result(_TIMEOUT_S)


if __name__ == "__main__":
    main()
