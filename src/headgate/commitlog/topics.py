"""Topics of the log, found and made without an event loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg.types.json import Jsonb

from headgate.commitlog.configs import check_configs, retention_class
from headgate.commitlog.prepare import Rules, rules_of

__all__ = ["LogTopic", "ensure_topic", "find_topic", "find_topics"]

_TOPICS = """
select t.name, array_agg(p.part_id order by p.index), t.configs
from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
where {} group by t.id order by t.name
"""
_BY_NAME = _TOPICS.format("t.name = any(%s)").encode()
_BY_PATTERN = _TOPICS.format("t.name ~ ('^(' || %s || ')$')").encode()


@dataclass(frozen=True, slots=True)
class LogTopic:
    """A topic as writers and readers of the tables see it."""

    name: str
    parts: tuple[int, ...]  # `part_id` of every partition
    rules: Rules


def find_topics(connection: psycopg.Connection, names: list[str] | None = None, pattern: str = "") -> list[LogTopic]:
    """Topics by their names, or those whose whole name matches a regular expression."""
    found = connection.execute(_BY_PATTERN, [pattern]) if names is None else connection.execute(_BY_NAME, [names])
    return [LogTopic(name, tuple(parts), rules_of(configs)) for name, parts, configs in found]


def find_topic(connection: psycopg.Connection, name: str) -> LogTopic | None:
    found = find_topics(connection, [name])
    return found[0] if found else None


def ensure_topic(
    connection: psycopg.Connection, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> LogTopic:
    """The topic of that name, made if there is none. Raises `Refused` for settings that cannot be."""
    found = find_topic(connection, name)
    if found is None:
        settings = dict(configs or {})
        check_configs(settings)
        made = [name, partitions, Jsonb(settings), *retention_class(settings)]
        connection.execute("select kafka.create_topic(%s, %s, %s, %s, %s)", made)
        found = find_topic(connection, name)
        assert found is not None
    return found
