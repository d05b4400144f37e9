"""`headgate state`: what a pipeline remembers between runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headgate.cli.output import ConfigOption, JsonOption, print_fields, print_json
from headgate.cli.reset import reset
from headgate.config import load
from headgate.model import UsageError
from headgate.pipeline.assemble import source_of
from headgate.pipeline.checkpoint import batch_end_offset
from headgate.pipeline.places import pipeline_dir
from headgate.pipeline.resetting import checkpoint_of, resets_of
from headgate.pipeline.state import StateFile
from headgate.spool.dead_letters import DEAD_LETTERS, DeadLetters

__all__ = ["state"]

state = typer.Typer(help="What a pipeline remembers between runs.", no_args_is_help=True)


@state.command()
def show(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the batch that is known to be delivered, and the file and byte, tracking value or offsets it reached."""
    loaded = load(config)
    if pipeline not in loaded.pipelines:
        raise UsageError(f"there is no pipeline {pipeline}", remedy=f"known: {', '.join(loaded.pipelines) or 'none'}")
    directory = pipeline_dir(loaded, pipeline)
    saved = StateFile(directory / "state.json").read()
    checkpoint = checkpoint_of(pipeline, directory, loaded.spark.checkpoint_dir, resets_of(directory))
    end = (saved.end or batch_end_offset(None, checkpoint, saved.batch_id)) if saved else None
    found = {
        "pipeline": pipeline,
        "path": directory / "state.json",
        "state": asdict(saved) if saved else None,
        "checkpoint": checkpoint,
        "reached": source_of(loaded, pipeline).reached(end) if end is not None else None,
        "dead_letters": DeadLetters(directory / DEAD_LETTERS).counts(),
    }
    (print_json if as_json else print_fields)(found)


state.command("reset")(reset)
