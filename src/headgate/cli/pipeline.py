"""`headgate pipeline`: steer a running pipeline. `headgate reload`: use the routes of the file as it is now."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from headgate.cli.control import ControlUrlOption, ask, running, settings_of
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_fields, print_json
from headgate.model import OccupiedError

__all__ = ["pipeline", "reload"]

pipeline = typer.Typer(help="Look at and steer a pipeline of the running headgate.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(help="Name of the pipeline, or of its source.")]


@pipeline.command()
def show(
    key: KeyArgument, config: ConfigOption = None, url: ControlUrlOption = None, as_json: JsonOption = False
) -> None:
    """Show one pipeline: status with history, configuration with secrets masked, routing."""
    (print_json if as_json else print_fields)(_ask(config, url, f"/pipelines/{key}"))


@pipeline.command()
def destinations(
    key: KeyArgument, config: ConfigOption = None, url: ControlUrlOption = None, as_json: JsonOption = False
) -> None:
    """Show the destinations of a pipeline: circuit breaker, counts, last error."""
    answer = _ask(config, url, f"/pipelines/{key}/destinations")
    if as_json:
        print_json(answer)
        return
    columns = list(dict.fromkeys(name for each in answer["destinations"] for name in each))
    table = Table(*columns, box=None, pad_edge=False)
    for each in answer["destinations"]:
        table.add_row(*(Text("-" if each.get(name) is None else str(each[name])) for name in columns))
    data_console.print(table)


@pipeline.command()
def pause(key: KeyArgument, config: ConfigOption = None, url: ControlUrlOption = None) -> None:
    """Pause a pipeline once its batch is delivered."""
    _order(key, "pause", config, url)


@pipeline.command()
def resume(key: KeyArgument, config: ConfigOption = None, url: ControlUrlOption = None) -> None:
    """Resume a paused pipeline."""
    _order(key, "resume", config, url)


@pipeline.command()
def restart(key: KeyArgument, config: ConfigOption = None, url: ControlUrlOption = None) -> None:
    """Restart a pipeline, also after an error: end its run and begin another."""
    _order(key, "restart", config, url)


@pipeline.command()
def stop(key: KeyArgument, config: ConfigOption = None, url: ControlUrlOption = None) -> None:
    """Finish the batch, then end this pipeline; the others go on."""
    _order(key, "stop", config, url)


@pipeline.command("abandon-batch")
def abandon_batch(
    key: KeyArgument,
    config: ConfigOption = None,
    url: ControlUrlOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Give up the batch that keeps failing, and go on behind it. ITS ROWS ARE LOST to the destinations.

    Before this, look whether admission.on_admission_failure = "dlq" would keep them.
    """
    batch_id = _ask(config, url, f"/pipelines/{key}")["failing_batch"]
    if batch_id is None:
        raise OccupiedError(f"no batch of {key} is failing", remedy="there is nothing to abandon: headgate status")
    if not yes and not typer.confirm(f"Lose the rows of batch {batch_id} of {key}, which keeps failing?", err=True):
        raise typer.Exit(1)
    answer = _ask(config, url, f"/pipelines/{key}/abandon-batch", method="POST", body={"batch_id": batch_id})
    note(f"{answer['pipeline']}: batch {answer['abandoned_batch']} abandoned")


def reload(config: ConfigOption = None, url: ControlUrlOption = None, as_json: JsonOption = False) -> None:
    """Let the running headgate read routes, mappings and lists of its file again, between two batches.

    A mistake in the file changes nothing. SIGHUP to the process does the same.
    """
    answer = _ask(config, url, "/reload", method="POST")
    if as_json:
        print_json(answer)
        return
    for name, epoch in answer["epochs"].items():
        note(f"{name}: routes of epoch {epoch}")
    if answer["needs_restart"]:
        note(f"changed, but needs a restart: {', '.join(answer['needs_restart'])}")


def _order(key: str, order: str, config: Any, url: str | None) -> None:
    answer = _ask(config, url, f"/pipelines/{key}/{order}", method="POST")
    note(f"{answer['pipeline']}: {order} ({answer['status']})")


def _ask(
    config: Any, url: str | None, path: str, *, method: str = "GET", body: dict[str, Any] | None = None
) -> dict[str, Any]:
    settings = settings_of(config, url)
    return ask(f"{running(settings, url)}{path}", settings, method=method, body=body)
