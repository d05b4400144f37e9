"""How a connection begins: which APIs there are, and who is speaking.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-35 (ApiVersions), KIP-43 and KIP-152 (SASL).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Bool, Bytes, Int16, Int32, Int64, String, since, tag

__all__ = [
    "API_VERSIONS",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeature",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "SupportedFeature",
]


class ApiVersionsRequest(Body, frozen=True):
    """Ask which APIs and versions are served; the first request of a connection."""

    client_software_name: Annotated[String, since(3)] = ""  # KIP-511
    client_software_version: Annotated[String, since(3)] = ""


class ApiVersion(Body, frozen=True):
    """An API and its versions."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeature(Body, frozen=True):
    """A feature that could be used."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeature(Body, frozen=True):
    """A feature in use."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Body, frozen=True):
    """The APIs. A request of an unknown version is answered with version 0 and error 35."""

    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeature, ...], since(3), tag(0)] = ()  # KIP-584
    finalized_features_epoch: Annotated[Int64, since(3), tag(1)] = -1
    finalized_features: Annotated[tuple[FinalizedFeature, ...], since(3), tag(2)] = ()
    zk_migration_ready: Annotated[Bool, since(3), tag(3)] = False


class SaslHandshakeRequest(Body, frozen=True):
    """Choose a SASL mechanism."""

    mechanism: String = ""


class SaslHandshakeResponse(Body, frozen=True):
    """The mechanisms there are."""

    error_code: Int16 = 0
    mechanisms: tuple[String, ...] = ()


class SaslAuthenticateRequest(Body, frozen=True):
    """One message of the mechanism."""

    auth_bytes: Bytes = b""

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(auth_bytes=***)"  # passwords and proofs


class SaslAuthenticateResponse(Body, frozen=True):
    """The mechanism's answer."""

    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0  # KIP-368

    def __repr__(self) -> str:
        return f"SaslAuthenticateResponse(error_code={self.error_code}, auth_bytes=***)"


API_VERSIONS = Api(18, ApiVersionsRequest, ApiVersionsResponse, first=0, last=4, flexible=3)
SASL_HANDSHAKE = Api(17, SaslHandshakeRequest, SaslHandshakeResponse, first=0, last=1)
SASL_AUTHENTICATE = Api(36, SaslAuthenticateRequest, SaslAuthenticateResponse, first=0, last=2, flexible=2)
