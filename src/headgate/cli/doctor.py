"""`headgate doctor`: everything that a bug report needs, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.control import ControlUrlOption, ask, control_url, settings_of
from headgate.cli.output import ConfigOption, note
from headgate.control.doctor import gather
from headgate.model import UsageError

__all__ = ["doctor"]


def doctor(
    config: ConfigOption = None,
    url: ControlUrlOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("headgate-doctor.txt"),
) -> None:
    """Gather configuration, versions, status, slots, locks and logs into one file, to attach to a bug report.

    Secrets are masked, and rows are not in it. Works whether headgate runs or not; what cannot be had says why.

    Example: headgate doctor --output report.txt
    """
    loaded = settings_of(config, url)
    address = url.rstrip("/") if url else control_url(loaded)
    text = gather(loaded, None if address is None else lambda path: ask(f"{address}{path}", loaded))
    try:
        output.touch(mode=0o600)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write: {error}", remedy="name another file with --output") from None
    note(f"wrote {output} ({len(text):,} characters); read it before you send it")
