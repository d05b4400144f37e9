"""What a destination is built with besides its own table of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from headgate.model import ConfigError

if TYPE_CHECKING:  # its module knows every kind's table, and so ours
    from headgate.config.models import NatsSection

__all__ = ["DestinationContext", "revealed"]


@dataclass(frozen=True, slots=True)
class DestinationContext:
    """The place of a destination in its project, and what the pipelines that write to it have in common."""

    name: str  # of its table in the configuration
    project: str
    data_dir: Path  # of the project
    nats: NatsSection
    nats_url: str | None = None  # behind `[nats]`, embedded or not
    postgres_url: str = ""  # behind `[postgres]`, embedded or not
    spark_master: str = "local[*]"
    is_alone: bool = False  # one CDC pipeline writes to it, and nobody else; only then is there one order of all rows
    has_streams: bool = False  # rows may name a stream
    has_batches: bool = False  # rows are whole batches of messages

    def database(self, own: SecretStr | None) -> str:
        """Return the URL of the destination's own server if it names one, otherwise that of `[postgres]`."""
        return revealed(own) or self.postgres_url

    def exclusive(self, wanted: bool | None) -> bool:
        """Decide whether a replay may begin behind what lies last. Raises `ConfigError` if that is wanted in vain."""
        if wanted and not self.is_alone:
            raise ConfigError(
                "exclusive needs rows in one order, and no other writer",
                where=f"destinations.{self.name}.exclusive",
                remedy="feed the destination by one postgres-cdc pipeline, or remove exclusive",
            )
        return self.is_alone if wanted is None else wanted


def revealed(secret: SecretStr | None) -> str:
    """Return the text of a secret; nothing if there is none."""
    return secret.get_secret_value() if secret else ""
