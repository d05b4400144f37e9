"""`headgate reset`: forgets what a pipeline has delivered, so that it starts from the beginning."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.output import ConfigOption, note
from headgate.config import Config, load
from headgate.control.state_lock import StateLock
from headgate.model import OccupiedError, UsageError
from headgate.pipeline.places import pipeline_dir
from headgate.pipeline.resetting import checkpoint_of, reset_pipeline, resets_of

__all__ = ["reset", "reset_stopped"]


def reset(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    config: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a pipeline's state and checkpoint: its rows are delivered again from the start, with new ids.

    Dead letters stay, and so does what a webhook has received: those rows are nowhere else. A CDC pipeline goes on
    where its slot stands, a broker's group at its cursor; if changes were lost before that, consumers of a CDC
    pipeline are told, and take new snapshots.

    Example: headgate reset orders --yes
    """
    loaded = load(config)
    if pipeline not in loaded.pipelines:
        raise UsageError(f"there is no pipeline {pipeline}", remedy=f"known: {', '.join(loaded.pipelines) or 'none'}")
    refuse_running(loaded)
    directory = pipeline_dir(loaded, pipeline)
    if not yes and not typer.confirm(f"Forget what {pipeline} has delivered ({directory})?", err=True):
        raise typer.Exit(1)
    reset_stopped(loaded, pipeline)


def reset_stopped(config: Config, pipeline: str) -> None:
    """Reset a pipeline of a service that does not run, and cannot begin to meanwhile."""
    source = config.sources[config.pipelines[pipeline].source]
    directory = pipeline_dir(config, pipeline)
    lock = StateLock(config.project.data_dir)
    lock.acquire()
    try:
        reset_pipeline(directory, keeps_spool=not source.can_read_again)
    finally:
        lock.release()
    note(f"reset {pipeline}")
    if config.spark.checkpoint_dir:
        old = checkpoint_of(pipeline, directory, config.spark.checkpoint_dir, resets_of(directory) - 1)
        note(f"the checkpoint so far is not used any more and can be removed: {old}")


def refuse_running(config: Config) -> None:
    """A reset under a running service would be undone by it."""
    owner = StateLock(config.project.data_dir).owner()
    if owner is not None:
        raise OccupiedError(f"process {owner} runs headgate on this data directory", remedy="stop it first, then reset")
