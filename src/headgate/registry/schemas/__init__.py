"""Schemas of Avro, JSON Schema and Protobuf: parsed within limits, named by what they say, compared. No database."""

from __future__ import annotations

from headgate.registry.schemas.kinds import Kind, Referenced, Schema, parse, read_problems
from headgate.registry.schemas.levels import Level, incompatibilities
from headgate.registry.schemas.problems import InvalidSchemaError, Problem

__all__ = [
    "InvalidSchemaError", "Kind", "Level", "Problem", "Referenced", "Schema", "incompatibilities", "parse",
    "read_problems",
]  # fmt: skip
