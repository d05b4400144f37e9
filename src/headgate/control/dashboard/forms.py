"""Forms of the dashboard: read within bounds, and refused unless their session made them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import Request

from headgate.control.dashboard.sessions import Session
from headgate.model import AuthError, UsageError

__all__ = ["FORM_SECRET", "checked_form", "read_form"]

FORM_SECRET = "form_secret"  # noqa: S105 - the name of a field
_MOST_BYTES = 1 << 20


async def read_form(request: Request, *fields: str, most_bytes: int = _MOST_BYTES) -> dict[str, str]:
    """The fields of a form; empty if it is none. A field that nobody reads is refused."""
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > most_bytes:
            return {}
    try:
        found = parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return {}
    if unknown := found.keys() - {*fields, FORM_SECRET}:
        raise UsageError(f"the form has an unknown field {min(unknown)[:40]!r}", remedy="load the page again")
    return {name: values[0] for name, values in found.items()}


def checked_form(form: Mapping[str, str], session: Session, *, acts: bool) -> None:
    """Refuse a form that another page has made, and one that acts for somebody who may only look."""
    if not session.owns(form.get(FORM_SECRET, "")):
        raise AuthError("the form does not belong to this session", remedy="load the page again")
    if acts and not session.may_act:
        raise AuthError(
            "these pages only show", remedy="set control.token and log in with it; or use the commands: headgate --help"
        )
