"""`headgate schema`: the configuration's JSON Schema, for editors."""

from __future__ import annotations

from headgate.cli.output import print_json
from headgate.config import Config

__all__ = ["schema"]


def schema() -> None:
    """Print the JSON Schema of headgate.toml, for completion and checks in your editor.

    Example: headgate schema > headgate.schema.json
    """
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema"} | Config.model_json_schema())
