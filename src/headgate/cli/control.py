"""Questions to the control plane of a running headgate."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.config import Config, load
from headgate.control.runfile import RunFile
from headgate.model import AuthError, ConnectError, UsageError

__all__ = ["ControlUrlOption", "ask", "control_url", "running", "settings_of"]

ControlUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HEADGATE_URL",
        help="Control plane of a headgate without a file, such as a bridge; its token is in HEADGATE_TOKEN.",
    ),
]


def settings_of(config: Path | None, url: str | None) -> Config:
    """The file, or for a headgate that is named by its address nothing but the token."""
    if config is not None or url is None:
        return load(config)
    token = os.environ.get("HEADGATE_TOKEN")
    return Config.model_validate({"control": {"token": token}} if token else {})


def running(config: Config, url: str | None) -> str:
    """The address of the running headgate, or the error that there is none."""
    found = url.rstrip("/") if url else control_url(config)
    if found is None:
        raise ConnectError(
            "headgate is not running", remedy="start it with: headgate run, or name it: --url http://..."
        )
    return found


def control_url(config: Config) -> str | None:
    """Where it listens, if it runs."""
    return RunFile(config.project.data_dir).read()


def ask(url: str, config: Config, *, method: str = "GET", body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer as JSON; what the control plane refuses is raised in its own words."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)  # noqa: S310 - the address comes from our own run file
    if config.control.token:
        request.add_header("Authorization", f"Bearer {config.control.token.get_secret_value()}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error, url) from None
    except (urllib.error.URLError, TimeoutError) as error:
        raise ConnectError(f"no answer: {error}", where=url, remedy="is headgate still starting, or stuck?") from None


def _refused(error: urllib.error.HTTPError, url: str) -> AuthError | UsageError:
    if error.code == 401:
        return AuthError(f"the control plane answered {error.code}", where=url, remedy="check [control] token")
    try:
        problem = json.load(error)
    except ValueError:
        problem = {}
    return UsageError(
        problem.get("title", f"the control plane answered {error.code}"), remedy=problem.get("remedy", "")
    )
