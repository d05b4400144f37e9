"""`headgate schema`: the configuration's JSON Schema, for editors, and the OpenAPI file of the control plane."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.output import print_json
from headgate.config import Config
from headgate.control.service_routes import description

__all__ = ["schema"]


def schema(
    openapi: Annotated[
        bool, typer.Option("--openapi", help="The control plane's OpenAPI description instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of headgate.toml, for completion and checks in your editor.

    Example: headgate schema > headgate.schema.json

    Example: headgate schema --openapi > docs/openapi.json
    """
    if openapi:
        print_json(description(), sort_keys=True)
        return
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema"} | Config.model_json_schema())
