"""What every table of `headgate.toml` is made of: strict, frozen sections, and values with units."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr, model_validator

__all__ = ["Duration", "Name", "PluginOptions", "SecretText", "Section", "Size"]

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _quantity(units: dict[str, float] | dict[str, int], example: str) -> BeforeValidator:
    names = "|".join(sorted(units, key=len, reverse=True))
    pattern = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({names})\s*")

    def parse(value: object) -> object:
        if not isinstance(value, str):
            return value
        match = pattern.fullmatch(value)
        if match is None:
            raise ValueError(f"write a number with a unit, such as {example}; units are {', '.join(units)}")
        return float(match[1]) * units[match[2]]

    return BeforeValidator(parse)


Duration = Annotated[float, _quantity(_UNITS_S, '"500ms" or "30s"'), Field(ge=0)]
"""Seconds; in TOML a number of seconds or text such as `"30s"`."""

Size = Annotated[int, _quantity(_UNITS_BYTES, '"64MB" or "1GiB"'), Field(ge=0)]
"""Bytes; in TOML a number of bytes or text such as `"64MB"`."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]

SecretText = Annotated[SecretStr, PlainSerializer(lambda secret: "********", return_type=str)]

PluginOptions = Annotated[dict[str, Any], PlainSerializer(lambda options: dict.fromkeys(options, "********"))]
"""Nobody knows which of them are secrets, so all are masked."""


class Section(BaseModel):
    """A table of the file: frozen, strict about unknown keys, and able to read secrets from files."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _read_secret_files(cls, data: Any) -> Any:
        """`password_file = "/run/secrets/pg"` fills `password`, as container platforms hand secrets out."""
        if not isinstance(data, dict):
            return data
        filled = dict(data)
        for key in [k for k in data if k.endswith("_file") and k in cls.model_fields]:
            target = key.removesuffix("_file")
            if target not in cls.model_fields:
                continue
            if target in data:
                raise ValueError(f"set {target} or {key}, not both")
            filled[target] = _read_secret(data[key])
        return filled


def _read_secret(path: object) -> str:
    try:
        return Path(str(path)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the secret file {path}: {error}") from None
