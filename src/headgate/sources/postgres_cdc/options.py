"""Options of the `pgcdc` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast, get_args

from headgate.model import UsageError
from headgate.sources.options import names, parse_options

if TYPE_CHECKING:  # the configuration takes its defaults from here, and needs no codecs for that
    from headgate.spool.dead_letters import DeadLetters
    from headgate.wire.envelope import DebeziumOptions

__all__ = ["CdcOptions", "Format", "Ordering", "why_not_registrable"]

Format = Literal["msgpack", "json", "debezium"]
Ordering = Literal["total", "table", "key"]


@dataclass(frozen=True, slots=True)
class CdcOptions:
    """What `spark.readStream.format("pgcdc").option(...)` accepts. Limits are named after the Kafka source's."""

    url: str = field(repr=False)
    slot: str
    publication: str
    spool: str  # a local directory that only this slot uses
    format: str = "msgpack"
    subject: str = "cdc.{schema}.{table}.{op}"
    max_offsets_per_trigger: int = 250_000  # changes
    max_bytes_per_trigger: int = 64 << 20
    max_spool_bytes: int = 1 << 30
    create_publication_for: str = ""  # tables, separated by commas; `*` for all
    failover: bool = False
    debezium: str = ""  # options of that format as JSON: see `debezium`
    schema_registry: str = field(default="", repr=False)  # its address, with a password in it if it wants one
    images: bool = False  # also the columns _key, _before and _after
    confirm: str = "commit"  # when to tell PostgreSQL: after Spark's commit, or `pipeline` when somebody else does
    table: str = ""  # only this table, in its own columns: see `typed`
    located: bool = False  # rows say only where changes lie, for whoever decodes them later in the query: see `ranges`
    follow: bool = False  # tasks go on behind their range, so that there is always a batch: see `follow`
    dead_letters: str = ""  # a file for rows that cannot become events, which otherwise end the query
    max_dead_letters: int = 1_000_000
    max_dead_letter_bytes: int = 1 << 30
    ordering: str = "total"  # what stays in order: all changes, those of a table, or those of a key
    tasks: int = 1  # that a batch has, unless `ordering` is total
    serve_on: str = ""  # an address of this machine, where executors read the spool that do not see its files
    text_columns: str = ""  # columns of `table`, separated by commas, to read as PostgreSQL's text

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        parsed = parse_options(cls, options, source="pgcdc")
        if parsed.format not in get_args(Format):
            raise UsageError(
                f"the option format is {parsed.format!r}",
                where='format("pgcdc")',
                remedy=f"one of: {', '.join(get_args(Format))}",
            )
        if parsed.ordering not in get_args(Ordering):
            raise UsageError(
                f"the option ordering is {parsed.ordering!r}",
                where='format("pgcdc")',
                remedy=f"one of: {', '.join(get_args(Ordering))}",
            )
        _ = parsed.debezium_options  # better known now than in a task
        if parsed.schema_registry and (reason := parsed.not_registrable):
            raise UsageError(f"a schema registry {reason[0]}", where='format("pgcdc")', remedy=reason[1])
        return parsed

    @property
    def debezium_options(self) -> DebeziumOptions:
        """What `debezium` says: JSON with Debezium's own names, `_` in place of `.`."""
        import msgspec

        from headgate.wire.envelope import DebeziumOptions

        known = [each.name for each in fields(DebeziumOptions)]
        try:
            chosen = msgspec.json.decode(self.debezium or "{}", type=dict[str, Any])
            unknown = sorted(set(chosen) - set(known))
            if unknown:
                raise msgspec.ValidationError(f"unknown: {', '.join(unknown)}")
            return msgspec.convert({"topic_prefix": self.slot, **chosen}, DebeziumOptions)
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"the option debezium: {error}",
                where='format("pgcdc")',
                remedy=f"a JSON object of: {', '.join(known)}",
            ) from None

    @property
    def not_registrable(self) -> tuple[str, str] | None:
        """Why messages cannot have their schemas in a registry, and what to do about it; None if they can."""
        return why_not_registrable(self.format, self.subject, schemas_enable=self.debezium_options.schemas_enable)

    @property
    def has_message_keys(self) -> bool:
        """Whether messages have keys, which those of other formats have not."""
        return self.format == "debezium" and self.debezium_options.message_keys

    @property
    def publications(self) -> tuple[str, ...]:
        return names(self.publication)

    @property
    def tables(self) -> tuple[str, ...]:
        return names(self.create_publication_for)

    @property
    def text_column_names(self) -> tuple[str, ...]:
        return names(self.text_columns)

    @property
    def dead_letter_store(self) -> DeadLetters | None:
        """Where rows go that cannot become events. A table in its own columns has no place for their markers."""
        if not self.dead_letters or self.table:
            return None
        from headgate.spool.dead_letters import DeadLetters

        path = Path(self.dead_letters)
        return DeadLetters(path, max_rows=self.max_dead_letters, max_bytes=self.max_dead_letter_bytes)

    @property
    def spool_dir(self) -> Path:
        return Path(self.spool)

    @property
    def envelope(self) -> Format:
        return cast(Format, self.format)


def why_not_registrable(format: str, subject: str, *, schemas_enable: bool) -> tuple[str, str] | None:  # noqa: A002
    """Say why a schema registry has no place for messages such as these, and what to do; None if it has."""
    if format != "debezium":
        return "has schemas of Debezium's messages only", 'set format = "debezium"'
    if schemas_enable:
        return "takes the schemas out of the messages", "leave out schemas_enable"
    if "{op}" in subject:
        return "has one schema for each topic, and changes of a row go to several", "leave {op} out of subject"
    return None
