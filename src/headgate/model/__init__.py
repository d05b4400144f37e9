"""The nouns that every room shares. Imports no other room."""

from __future__ import annotations

from headgate.model.address import Address
from headgate.model.errors import (
    AuthError,
    CapacityError,
    ConfigError,
    ConnectError,
    DataError,
    DeliveryError,
    DependencyError,
    HeadgateError,
    InternalError,
    Kind,
    OccupiedError,
    ProtocolError,
    Retry,
    StateError,
    UsageError,
)
from headgate.model.position import Position
from headgate.model.status import Status

__all__ = [
    "Address",
    "AuthError",
    "CapacityError",
    "ConfigError",
    "ConnectError",
    "DataError",
    "DeliveryError",
    "DependencyError",
    "HeadgateError",
    "InternalError",
    "Kind",
    "OccupiedError",
    "Position",
    "ProtocolError",
    "Retry",
    "StateError",
    "Status",
    "UsageError",
]
