"""`headgate dlq`: rows that were refused. See them, send them on, throw them away."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from rich.table import Table

from headgate.cli.control import ControlUrlOption, ask, running, settings_of
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_fields, print_json
from headgate.config import Config, load
from headgate.model import UsageError
from headgate.model.dead_letter import Selection
from headgate.pipeline.places import pipeline_dir
from headgate.spool.dead_letters import DEAD_LETTERS, DeadLetters

__all__ = ["dlq"]

dlq = typer.Typer(
    help="Rows that were refused, with the reason: see them, send them on, throw them away.", no_args_is_help=True
)

PipelineArgument = Annotated[str, typer.Argument(help="Name of the pipeline.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Only dead letters with this reason, such as cap.")]
NumbersArgument = Annotated[list[int] | None, typer.Argument(help="Numbers of dead letters.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]


@dlq.command("list")
def list_letters(
    pipeline: Annotated[str | None, typer.Argument(help="Name of the pipeline.", show_default="all of them")] = None,
    config: ConfigOption = None,
    url: ControlUrlOption = None,
    reason: ReasonOption = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only dead letters for this topic.")] = None,
    after: Annotated[int, typer.Option("--after", help="Only dead letters with a larger number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many of each pipeline.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show dead letters, oldest first, of one pipeline or of all. Works whether headgate runs or not.

    Example: headgate dlq list orders --reason circuit_open
    """
    loaded = settings_of(config, url)
    chosen = {"reason": reason, "topic": topic, "after": after, "limit": limit}
    wanted = [pipeline] if pipeline else _pipelines(loaded, url)
    found = {name: _letters(loaded, url, name, chosen) for name in wanted}
    if as_json:
        print_json(found[pipeline] if pipeline else found)
        return
    for name, letters in found.items():
        _show_letters(name, letters)


def _letters(config: Config, url: str | None, pipeline: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return dead letters with their counts: from the control plane at `url`, or from the files without one."""
    if url is not None:
        query = urlencode({name: value for name, value in chosen.items() if value})
        return ask(f"{running(config, url)}/pipelines/{pipeline}/dead-letters?{query}", config)
    store = _store(config, pipeline)
    return {"counts": store.counts(), "dead_letters": [letter.as_dict() for letter in store.list(**chosen)]}


def _pipelines(config: Config, url: str | None) -> list[str]:
    if url is None:
        return sorted(config.pipelines)
    return [each["pipeline"] for each in ask(f"{running(config, url)}/status", config)["pipelines"]]


def _show_letters(pipeline: str, found: dict[str, Any]) -> None:
    table = Table("number", "reason", "destination", "position", "bytes", "when", box=None)
    for letter in found["dead_letters"]:
        when = datetime.fromtimestamp(letter["at"], tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        place = "/".join(part for part in (letter["stream"], letter["topic"]) if part) or "-"
        size = f"{letter['payload_bytes']:,}"
        table.add_row(str(letter["number"]), letter["reason"], place, letter["position"], size, when)
    if found["dead_letters"]:
        data_console.print(table)
    counts = ", ".join(f"{count:,} {name}" for name, count in found["counts"].items())
    note(f"{pipeline}: {counts or 'no dead letters'}")


@dlq.command()
def show(
    pipeline: PipelineArgument,
    number: Annotated[int, typer.Argument(help="Number of the dead letter.")],
    config: ConfigOption = None,
    url: ControlUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter with its payload.

    Example: headgate dlq show orders 17
    """
    loaded = settings_of(config, url)
    if url is not None:
        found = ask(f"{running(loaded, url)}/pipelines/{pipeline}/dead-letters/{number}", loaded)
    else:
        letter = _store(loaded, pipeline).get(number)
        if letter is None:
            raise UsageError(f"there is no dead letter {number}", remedy=f"headgate dlq list {pipeline}")
        found = letter.as_dict(payload=True)
    (print_json if as_json else print_fields)(found)


@dlq.command()
def replay(
    pipeline: PipelineArgument,
    numbers: NumbersArgument = None,
    config: ConfigOption = None,
    url: ControlUrlOption = None,
    reason: ReasonOption = None,
    everything: AllOption = False,
    to: Annotated[str | None, typer.Option("--to", help="Another destination: TOPIC or STREAM/TOPIC.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters on, to where they wanted to go or elsewhere; what is delivered is forgotten here.

    The running headgate does it, between two batches. What is still refused stays.

    Example: headgate dlq replay orders --reason circuit_open
    """
    loaded = settings_of(config, url)
    if url is None:
        _must_exist(loaded, pipeline)
    chosen = Selection(tuple(numbers or ()), reason, everything)
    body: dict[str, Any] = {name: value for name, value in asdict(chosen).items() if value}
    if to:
        stream, _, topic = to.rpartition("/")
        body["to"] = {"stream": stream, "topic": topic}
    base = running(loaded, url)
    answer = ask(f"{base}/pipelines/{pipeline}/dead-letters/replay", loaded, method="POST", body=body)
    if as_json:
        print_json(answer)
    else:
        note(f"{pipeline}: {answer['delivered']:,} delivered")
        for why, count in answer["kept"].items():
            note(f"  {count:,} kept: {why}")
    if answer["kept"]:
        raise typer.Exit(1)


@dlq.command()
def purge(
    pipeline: PipelineArgument,
    numbers: NumbersArgument = None,
    config: ConfigOption = None,
    reason: ReasonOption = None,
    everything: AllOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Throw dead letters away. They were never delivered.

    Example: headgate dlq purge orders --reason denylist --yes
    """
    store = _store(load(config), pipeline)
    chosen = Selection(tuple(numbers or ()), reason, everything)
    count = len(numbers) if numbers else sum(n for name, n in store.counts().items() if reason in (None, name))
    if not yes and not typer.confirm(f"Throw {count} dead letters of {pipeline} away?", err=True):
        raise typer.Exit(1)
    note(f"{pipeline}: {store.purge(chosen):,} thrown away")


def _store(config: Config, pipeline: str) -> DeadLetters:
    _must_exist(config, pipeline)
    return DeadLetters(pipeline_dir(config, pipeline) / DEAD_LETTERS)


def _must_exist(config: Config, pipeline: str) -> None:
    if pipeline not in config.pipelines:
        raise UsageError(f"there is no pipeline {pipeline}", remedy=f"known: {', '.join(config.pipelines) or 'none'}")
