"""Which subjects of the stream a consumer reads, and which of them are chains that show a missing message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.consume.tables import TableName
from headgate.wire.envelope import GAP_PREFIX, subject_token
from headgate.wire.envelope.subject import fill_subject
from headgate.wire.nats import covers

__all__ = ["chain_of", "filters", "previous_of", "table_chain", "table_subject"]

_PREVIOUS_HEADER = "Headgate-Previous"


def table_subject(template: str, name: TableName) -> str:
    """The subject of all events of a table."""
    filled = template.replace("{schema}", subject_token(name.schema)).replace("{table}", subject_token(name.table))
    tokens = ["*" if "{op}" in token else token for token in filled.split(".")]
    return ".".join(tokens)


def filters(template: str, names: Iterable[TableName]) -> list[str]:
    """The tables' subjects and that of gap markers; the server wants none that another one covers."""
    wanted = {table_subject(template, name) for name in names}
    wanted.add(fill_subject(template, "message", GAP_PREFIX, "message"))
    return sorted(each for each in wanted if not any(other != each and covers(other, each) for other in wanted))


def chain_of(subject: str) -> str:
    """The chain that a message belongs to: its subject without the operation."""
    return subject.rpartition(".")[0]


def table_chain(template: str, name: TableName) -> str | None:
    """A table's chain, if whoever reads the table reads all of it."""
    chain, _, last = table_subject(template, name).rpartition(".")
    return chain if last == "*" and "*" not in chain else None


def previous_of(headers: Mapping[str, str] | None) -> int | None:
    """The sequence of the message before this one in its chain, 0 for none; None if nobody wrote it down."""
    text = None if headers is None else headers.get(_PREVIOUS_HEADER)
    return int(text) if text is not None and text.isdecimal() else None
