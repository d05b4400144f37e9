"""Is the SQL of a configuration SQL? Asked of Spark's own parser, without starting Spark."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

from headgate.config import Config, Problem
from headgate.config.explain import dotted, line_of
from headgate.config.sources import FilesSourceSection, WebhookSourceSection
from headgate.config.transforms import FilterTransform, SelectTransform, SqlTransform
from headgate.embedded import find_java
from headgate.model.extras import missing_extra

__all__ = ["sql_problems"]

_QUIET = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class _Text(NamedTuple):
    path: tuple[str, ...]
    method: str  # of Spark's parser
    text: str


def sql_problems(config: Config, lines: dict[tuple[str, ...], int]) -> list[Problem]:
    """Texts that Spark would not understand. If there are any, imports Spark and starts Java; raises if it cannot."""
    texts = list(_texts(config))
    if not texts:
        return []
    os.environ["JAVA_HOME"] = str(find_java(config.project.data_dir / "java").home)
    gateway = _gateway()
    try:
        parser = gateway.jvm.org.apache.spark.sql.execution.SparkSqlParser()
        return [problem for text in texts if (problem := _problem(parser, text, lines)) is not None]
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)


def _gateway() -> Any:
    try:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway
    except ModuleNotFoundError as error:
        raise missing_extra(error, "run") or error from None
    return launch_gateway(SparkConf(loadDefaults=False), popen_kwargs=_QUIET)  # type: ignore[no-untyped-call]


def _texts(config: Config) -> Iterator[_Text]:
    for name, pipeline in config.pipelines.items():
        for number, transform in enumerate(pipeline.transforms):
            path = ("pipelines", name, "transforms", str(number))
            match transform:
                case FilterTransform():
                    yield _Text((*path, "where"), "parseExpression", transform.where)
                case SelectTransform():
                    for column in transform.columns:
                        yield _Text((*path, "columns"), "parseExpression", column)
                case SqlTransform():
                    yield _Text((*path, "query"), "parsePlan", transform.query)
    for name, source in config.sources.items():
        if isinstance(source, FilesSourceSection) and source.row_schema:
            yield _Text(("sources", name, "row_schema"), "parseTableSchema", source.row_schema)
        if isinstance(source, WebhookSourceSection) and source.event_schema:
            yield _Text(("sources", name, "event_schema"), "parseTableSchema", source.event_schema)


def _problem(parser: Any, text: _Text, lines: dict[tuple[str, ...], int]) -> Problem | None:
    from py4j.protocol import Py4JJavaError

    try:
        getattr(parser, text.method)(text.text)
    except Py4JJavaError as error:
        said = [line.strip() for line in str(error.java_exception.getMessage()).splitlines() if line.strip()]
        reason = said[0].removeprefix("[").replace("] ", ": ", 1) if said else "not understood"
        message, remedy = f"{reason} in {text.text!r}", "correct the SQL, which is Spark's"
        return Problem(dotted(text.path), line_of(text.path, lines), message, remedy)
    return None
