"""`headgate explain`: says where sample rows of a pipeline would go and why, without sending anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from headgate.cli.control import ask, control_url
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import Config, load
from headgate.control.samples import explain_rows, last_events, table_rows
from headgate.model import UsageError

__all__ = ["explain"]


def explain(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    config: ConfigOption = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", "-r", help="""A row as JSON, such as '{"kind": "order"}'.""")
    ] = None,
    table: Annotated[str | None, typer.Option("--table", "-t", help="Take rows of this table.")] = None,
    last: Annotated[int, typer.Option("--last", help="Take the last events that the pipeline delivered.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many rows of the table.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Say of sample rows: rule -> destination -> partition -> verdict -> what would be created. Sends nothing.

    Rows are given as the source makes them, and go through the pipeline's transforms; of a webhook the body alone will
    do, of a postgres-cdc source the row. Without a running headgate, Spark is started for it, which takes a while.
    Rows come from --row, from a table, from the last events, or from standard input (one JSON object a line).

    Example: headgate explain orders --row '{"kind": "order.created"}'

    Example: headgate explain orders --table public.events --limit 3
    """
    loaded = load(config)
    if pipeline not in loaded.pipelines:
        raise UsageError(f"there is no pipeline {pipeline}", remedy=f"known: {', '.join(loaded.pipelines) or 'none'}")
    rows = list(_rows(loaded, pipeline, row or [], table, last, limit))
    if not rows:
        raise UsageError("there is no row to explain", remedy="give --row, --table, --last, or lines on standard input")
    explained, remarks = _explained(loaded, pipeline, rows)
    if as_json:
        print_json({"pipeline": pipeline, "rows": explained, "remarks": remarks})
        return
    for each in explained:
        _show(each)
    for remark in remarks:
        note(remark)


def _explained(config: Config, pipeline: str, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """By the running pipeline, which knows its breakers and its limit; else as if it had just started."""
    url = control_url(config)
    if url is None:
        explained, remarks = explain_rows(config, pipeline, rows)
        return [each.as_dict() for each in explained], remarks
    plain = json.loads(json.dumps(rows, default=str))
    answer = ask(f"{url}/pipelines/{pipeline}/explain", config, method="POST", body={"rows": plain})
    return answer["rows"], [*answer["remarks"], "said by the running pipeline, with the routes it uses now"]


def _rows(
    config: Config, pipeline: str, given: list[str], table: str | None, last: int, limit: int
) -> Iterator[dict[str, Any]]:
    yield from (_parsed(text) for text in given)
    if table:
        yield from table_rows(config, pipeline, table, limit)
    if last:
        yield from last_events(config, pipeline, last)
    if not (given or table or last) and not sys.stdin.isatty():
        yield from (_parsed(line) for line in sys.stdin if line.strip())


def _parsed(text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise UsageError(f"not JSON: {error}", remedy="""write a row such as '{"kind": "order"}'""") from None
    if not isinstance(row, dict):
        raise UsageError("a row is a JSON object", remedy="""write a row such as '{"kind": "order"}'""")
    return row


def _show(each: dict[str, Any]) -> None:
    text = json.dumps(each["row"], default=str)
    looked = ", ".join(f"{name} = {value!r}" for name, value in each["looked_at"].items())
    data_console.print(text if len(text) <= 110 else f"{text[:107]}...", style="bold", markup=False)
    data_console.print(f"  looks at     {looked or 'nothing'}", markup=False)
    data_console.print(f"  rule         {each['rule']}", markup=False)
    if each["note"]:
        data_console.print(f"  goes nowhere {each['note']}", markup=False, style="yellow")
    for verdict in each["verdicts"]:
        data_console.print(f"  goes to      {verdict['destination']}", markup=False)
        data_console.print(f"    partition  {verdict['partition']}", markup=False)
        style = "green" if verdict["admission"] == "admitted" else "red"
        data_console.print(f"    verdict    {verdict['admission']}", markup=False, style=style)
        for made in verdict["creates"]:
            data_console.print(f"    creates    {made}", markup=False)
