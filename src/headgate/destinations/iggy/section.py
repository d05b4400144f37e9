"""The configuration of a `iggy` destination."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from headgate.config.base import Duration, SecretText
from headgate.config.kinds import DestinationTable
from headgate.config.options import option
from headgate.destinations.iggy.options import IggyOptions

__all__ = ["IggyDestinationSection"]


class IggyDestinationSection(DestinationTable):
    """Topics of an Apache Iggy server. Needs `pip install 'headgate[iggy]'`."""

    type: Literal["iggy"]
    server: str = option(IggyOptions, "server", min_length=3, description="`host:port` of the server.")
    stream: str = option(IggyOptions, "stream", min_length=1, description="Stream for rows that name none.")
    mode: Literal["direct"] = option(
        IggyOptions, "mode", description="In the background nothing would be acknowledged."
    )
    user: str | None = Field(None, description="User name.")
    password: SecretText | None = Field(None, description="Password for `user`.")
    password_file: Path | None = Field(None, description="Read `password` from this file.")
    token: SecretText | None = Field(None, description="Personal access token, in place of user and password.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    tls: bool = option(IggyOptions, "tls", description="Encrypt the connection.")
    tls_domain: str | None = Field(None, description="Name in the server's certificate, if not the address's.")
    tls_ca: Path | None = Field(None, description="Certificate authority that signed the server's certificate.")
    max_rows_per_request: int = option(
        IggyOptions, "max_rows_per_request", ge=1, le=100_000, description="Rows in one request."
    )
    connect_timeout: Duration = option(
        IggyOptions, "connect_timeout_s", gt=0, description="How long to wait for a connection."
    )
    send_timeout: Duration = option(
        IggyOptions, "send_timeout_s", gt=0, description="How long to wait for an acknowledgement."
    )
