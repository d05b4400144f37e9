"""How each row of a pipeline says where it goes: `[pipelines.NAME.routing]` and the transform `route`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headgate.config.base import Duration, SecretText, Section, Size

__all__ = [
    "Action",
    "AdmissionSection",
    "BreakerSection",
    "DestinationPattern",
    "RouteTransform",
    "RoutingSection",
    "Target",
    "Targets",
    "TopicDefaultsSection",
]

_NAME = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_SEGMENT = r"^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)$"

Action = Literal["drop", "error", "dlq"]


class Target(Section):
    """A destination that a route names."""

    stream: str | None = Field(None, pattern=_NAME, description="Left out: the stream of the destination itself.")
    topic: str = Field(pattern=_NAME, description="The topic.")


def _as_target(value: Any) -> Any:
    """`"orders"` is short for `{ topic = "orders" }`."""
    return {"topic": value} if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


ShortTarget = Annotated[Target, BeforeValidator(_as_target)]
Targets = Annotated[tuple[ShortTarget, ...], BeforeValidator(_as_list), Field(min_length=1)]
"""One destination or several: `"orders"`, `{ stream = "shop", topic = "orders" }`, or a list of these."""


def _is_path(path: str) -> str:
    if not path or any(not part for part in path.split(".")) or "[" in path:
        raise ValueError("write a path of names such as event.type: objects only, no lists, no empty parts")
    return path


FieldPath = Annotated[str, AfterValidator(_is_path)]


class RouteTransform(Section):
    """Looks a value of the row up, and sends the row where the mapping says. It replaces any destination so far."""

    type: Literal["route"]
    field: Annotated[tuple[FieldPath, ...], BeforeValidator(_as_list)] = Field(
        min_length=1,
        description="What to look up: a dotted path such as `event.type`, `headers.x-kind`, `_table` or `_schema`; "
        "of a list, the values joined with `/`.",
    )
    mapping: dict[str, Targets] = Field(default_factory=dict, description="Value -> topic, target, or several of them.")
    mapping_url: str | None = Field(
        None,
        pattern=r"^https?://[^@/]+(/.*)?$",
        description="Fetch the mapping from here, as JSON, at the start and at a reload.",
    )
    mapping_token: SecretText | None = Field(None, description="Bearer token for `mapping_url`.")
    mapping_token_file: Path | None = Field(None, description="Read `mapping_token` from this file.")
    stream: str | None = Field(None, pattern=_NAME, description="The stream of targets that name none.")
    default_topic: str | None = Field(None, pattern=_NAME, description="Where rows go that no route matches.")
    match: Literal["first", "all"] = Field(
        "first", description="`first`: a match ends the search; `all`: later routes may add destinations."
    )

    @model_validator(mode="after")
    def _has_one_mapping(self) -> Self:
        if bool(self.mapping) == bool(self.mapping_url):
            raise ValueError("set mapping or mapping_url, and not both")
        return self


class TopicDefaultsSection(Section):
    """How topics that headgate creates for routed rows are made."""

    partitions_count: int = Field(1, ge=1, le=1000, description="Partitions of a new topic.")
    replicas: int = Field(1, ge=1, le=5, description="Copies, in a cluster.")
    max_age: Duration = Field(0.0, description="Drop messages older than this; 0 keeps them.")
    max_bytes: Size = Field(0, description="The most a new stream or topic may hold; 0 means no limit.")


class DestinationPattern(Section):
    """An entry of a list. `*` stands for a whole segment; there are no other wildcards."""

    stream: str = Field("*", pattern=_SEGMENT, description="Name of a stream, or `*`.")
    topic: str = Field("*", pattern=_SEGMENT, description="Name of a topic, or `*`.")

    @model_validator(mode="after")
    def _is_narrow(self) -> Self:
        if self.stream == self.topic == "*":
            raise ValueError('an entry that matches everything says nothing; use mode = "open"')
        return self

    @property
    def literal(self) -> bool:
        return "*" not in (self.stream, self.topic)


class AdmissionSection(Section):
    """Which destinations rows may ask for, and what happens to those that may not have theirs."""

    mode: Literal["open", "allowlist", "denylist"] = Field("open", description="Which of the lists counts.")
    allowlist: tuple[DestinationPattern, ...] = Field((), description='Such as `[{ stream = "shop", topic = "*" }]`.')
    denylist: tuple[DestinationPattern, ...] = Field((), description="The same, for what is refused.")
    max_destinations: int = Field(256, ge=1, le=100_000, description="The most destinations one run may use.")
    max_concurrent_destinations: int = Field(
        16, ge=1, le=1024, description="Streams sent to side by side. 1 also keeps the order across streams."
    )
    on_missing_destination: Literal["default", "drop", "error", "dlq"] = Field(
        "default", description="Rows without a destination. `default`: the default one; an error if there is none."
    )
    on_admission_failure: Action | None = Field(
        None, description="Rows that are refused. By default `error` for CDC and for destructive polling, else `drop`."
    )

    @model_validator(mode="after")
    def _lists_fit_the_mode(self) -> Self:
        if self.mode == "allowlist" and not self.allowlist:
            raise ValueError('mode = "allowlist" with an empty list refuses every row: add entries to allowlist')
        if self.mode == "denylist" and not self.denylist:
            raise ValueError('mode = "denylist" needs entries in denylist')
        literal = sum(entry.literal for entry in self.allowlist)
        if self.mode == "allowlist" and literal > self.max_destinations:
            raise ValueError(f"allowlist names {literal} destinations, max_destinations is {self.max_destinations}")
        return self


class BreakerSection(Section):
    """When a failing destination is left alone for a while."""

    failure_threshold: int = Field(5, ge=1, description="Failures in a row that open the breaker.")
    cool_down: Duration = Field(30.0, gt=0, description="How long it stays open; then one batch may try.")


class RoutingSection(Section):
    """Where each row goes: columns of the row, its table, or the transform `route`."""

    stream_column: str | None = Field(None, description="The column that names the stream.")
    topic_column: str | None = Field(None, description="The column that names the topic.")
    default_stream: str | None = Field(None, pattern=_NAME, description="For rows where `stream_column` is NULL.")
    default_topic: str | None = Field(None, pattern=_NAME, description="For rows where `topic_column` is NULL.")
    by_table: dict[str, ShortTarget] = Field(
        default_factory=dict, description='CDC: table -> destination, such as `"public.orders" = "orders"`.'
    )
    partition_key_column: str | None = Field(None, description="Rows of one value stay together; NULL goes anywhere.")
    partition_key_encoding: Literal["bytes", "key_u32", "partition_id"] = Field(
        "bytes", description="`bytes`: the text; `key_u32`: a number as 4 bytes; `partition_id`: the partition itself."
    )
    strip_routing_columns: bool = Field(False, description="Leave the routing columns out of the payload.")
    topic_defaults: TopicDefaultsSection = Field(
        default_factory=TopicDefaultsSection, description="How new topics are made."
    )
    admission: AdmissionSection = Field(
        default_factory=AdmissionSection, description="Which destinations rows may ask for."
    )
    circuit_breaker: BreakerSection = Field(
        default_factory=BreakerSection, description="When a failing topic is left alone."
    )
    startup_prewarm_deadline: Duration = Field(
        60.0, description="How long the start may take to create what the allowlist names; the rest comes when needed."
    )

    @property
    def derives_destinations(self) -> bool:
        """Whether these keys alone say where a row goes."""
        return bool(self.stream_column or self.topic_column or self.by_table)

    @model_validator(mode="after")
    def _columns_have_defaults(self) -> Self:
        for what in ("stream", "topic"):
            if getattr(self, f"{what}_column") and not getattr(self, f"default_{what}"):
                raise ValueError(f"{what}_column needs default_{what}, for rows where it is NULL")
        return self

    @model_validator(mode="after")
    def _partitions_can_be_chosen(self) -> Self:
        if self.partition_key_encoding == "partition_id":
            if not self.partition_key_column:
                raise ValueError('partition_key_encoding = "partition_id" needs partition_key_column')
            if self.topic_defaults.partitions_count < 2:
                raise ValueError(
                    'partition_key_encoding = "partition_id" needs topic_defaults.partitions_count above 1'
                )
        return self
