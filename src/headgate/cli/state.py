"""`headgate state`: what a pipeline remembers between runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headgate.cli.output import ConfigOption, print_json
from headgate.cli.reset import reset
from headgate.config import load
from headgate.model import UsageError
from headgate.model.dead_letters import DEAD_LETTERS, DeadLetters
from headgate.pipeline.assemble import pipeline_dir
from headgate.pipeline.state import StateFile

__all__ = ["state"]

state = typer.Typer(help="What a pipeline remembers between runs.", no_args_is_help=True)


@state.command()
def show(pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")], config: ConfigOption = None) -> None:
    """Print it as JSON: the batch that is known to be delivered, and which source and checkpoint it belongs to."""
    loaded = load(config)
    if pipeline not in loaded.pipelines:
        raise UsageError(f"there is no pipeline {pipeline}", remedy=f"known: {', '.join(loaded.pipelines) or 'none'}")
    directory = pipeline_dir(loaded, pipeline)
    saved = StateFile(directory / "state.json").read()
    print_json(
        {
            "pipeline": pipeline,
            "path": directory / "state.json",
            "state": asdict(saved) if saved else None,
            "dead_letters": DeadLetters(directory / DEAD_LETTERS).counts(),
        }
    )


state.command("reset")(reset)
