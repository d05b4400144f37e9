"""How far a replica is behind its stream."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.consume.link import Link
from headgate.consume.schemas import Schemas
from headgate.consume.subjects import table_subject
from headgate.consume.tables import TableName
from headgate.model.places import schema_bucket
from headgate.replica.target import Target

__all__ = ["has_applied", "last_sequence"]


async def last_sequence(link: Link, stream: str, tables: Iterable[TableName], bucket: str = "") -> int:
    """The last message of any of the tables; 0 if the stream has none. The bridge's bucket says where they go."""
    subject = await Schemas(link, bucket or schema_bucket(stream)).template()
    found = [await link.last_on(stream, table_subject(subject, table)) for table in tables]
    return max((message.seq or 0 for message in found if message is not None), default=0)


async def has_applied(link: Link, target: Target, stream: str, bucket: str = "") -> bool:
    """Whether all that the stream has of the replica's tables is in it."""
    position, schemas = target.load()
    return position is not None and position["sequence"] >= await last_sequence(link, stream, schemas, bucket)
