"""Consumer groups: the state machines, where they are stored, and the coordinator that drives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.gateway.groups.assignors import Partition
    from headgate.gateway.groups.classic import ClassicGroup
    from headgate.gateway.groups.consumer import ConsumerGroup
    from headgate.gateway.groups.coordinator import Coordinator
    from headgate.gateway.groups.group import Client
    from headgate.gateway.groups.settings import GroupSettings
    from headgate.gateway.groups.store import Commit, Committed
    from headgate.gateway.groups.topics import Sight
else:
    __getattr__ = lazily(
        __name__,
        ClassicGroup="classic",
        Client="group",
        Commit="store",
        Committed="store",
        ConsumerGroup="consumer",
        Coordinator="coordinator",
        GroupSettings="settings",
        Partition="assignors",
        Sight="topics",
    )

__all__ = [
    "ClassicGroup",
    "Client",
    "Commit",
    "Committed",
    "ConsumerGroup",
    "Coordinator",
    "GroupSettings",
    "Partition",
    "Sight",
]
