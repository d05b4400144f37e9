"""Offsets of consumer groups, translated exactly and written at the other cluster while nobody uses the group there.

An offset there is never taken back, and a group that has members there is left alone. An offset whose message is not
mirrored so far waits.
"""

from __future__ import annotations

import msgspec
import psycopg

from headgate.shadow.client import Client
from headgate.shadow.links import Link

__all__ = ["GroupOffset", "group_offsets", "push_groups"]


class GroupOffset(msgspec.Struct, frozen=True):
    """An offset of a group on one partition of a mirrored topic, here and there."""

    group: str
    topic: str
    partition: int
    ext_topic: str
    committed: int
    ext_offset: int | None  # where it should be there; None: not mirrored so far
    metadata: bytes
    state: str = ""


def group_offsets(connection: psycopg.Connection, link: Link) -> list[GroupOffset]:
    """Return the offsets of the link's groups, each with its translation."""
    raise NotImplementedError


def push_groups(connection: psycopg.Connection, client: Client, link: Link) -> list[GroupOffset]:
    raise NotImplementedError
