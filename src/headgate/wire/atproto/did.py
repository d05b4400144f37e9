"""DIDs and their documents: where a document is, and the two facts that a relay needs of it.

url = document_url(did)
document = parse_document(did, body)      # AtprotoError(BAD_DOCUMENT) when it is of another DID
document.key, document.pds                # either is None when the document has none

Specification: AT Protocol, "DID"; W3C Decentralized Identifiers (DIDs).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headgate.wire.atproto.errors import AtprotoError, Reason
from headgate.wire.atproto.keys import PublicKey, parse_legacy_key, parse_multikey
from headgate.wire.atproto.syntax import is_did, is_handle, is_plc

__all__ = ["PLC_DIRECTORY", "DidDocument", "document_url", "host_of", "is_supported", "parse_document", "web_host"]

PLC_DIRECTORY: Final = "https://plc.directory"
_MAX_DOCUMENT_BYTES = 1 << 20
_LOCALHOST = re.compile(r"localhost(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class DidDocument:
    """What a DID document says. `pds` is a host name, with a port when it is not the usual one."""

    did: str
    key: PublicKey | None
    pds: str | None
    pds_url: str | None
    handle: str | None


def is_supported(did: str) -> bool:
    """Is the DID of a method that accounts may have (Blessed DID Methods): did:plc, or did:web without a path?"""
    return is_plc(did) or web_host(did) is not None


def web_host(did: str) -> str | None:
    """The host of a did:web; None when it is none that accounts may have. A port is for localhost only.

    Specification: "DID", `did:web` in AT Protocol.
    """
    if not did.startswith("did:web:") or not is_did(did):
        return None
    host = unquote(did[8:]) if "%" in did else did[8:]
    if is_handle(host):
        return host.lower()
    found = _LOCALHOST.fullmatch(host)
    return host if found and int(found[1] or 1) < 1 << 16 and ":" not in did[8:] else None


def document_url(did: str, plc: str = PLC_DIRECTORY) -> str:
    """Where to GET the document."""
    if is_plc(did):
        return f"{plc.rstrip('/')}/{did}"
    host = web_host(did)
    if host is None:
        raise AtprotoError(Reason.BAD_SYNTAX, f"{did[:80]!r} is of no DID method that accounts have")
    scheme = "http" if _LOCALHOST.fullmatch(host) else "https"
    return f"{scheme}://{host}/.well-known/did.json"


def host_of(url: str) -> str | None:
    """The host of an origin such as `https://pds.example`, with its port when unusual; None if it says more."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    usual = _PORTS.get(parts.scheme)
    if usual is None or not parts.hostname or parts.path not in ("", "/"):
        return None
    if parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        return None
    return parts.hostname if port in (None, usual) else f"{parts.hostname}:{port}"


def parse_document(did: str, body: bytes | dict[str, Any]) -> DidDocument:
    """Read a document, as JSON or as what became of it. All rules below are of "DID", DID Documents."""
    document = _load(body) if isinstance(body, bytes) else body
    if not isinstance(document, dict) or document.get("id") != did:
        raise AtprotoError(Reason.BAD_DOCUMENT, f"the document is not the one of {did[:80]}")
    url = _pds_url(did, document)
    return DidDocument(did, _key(did, document), host_of(url) if url else None, url, _handle(document))


def _load(body: bytes) -> Any:
    if len(body) > _MAX_DOCUMENT_BYTES:
        raise AtprotoError(Reason.BAD_DOCUMENT, "a DID document of more than 1 MiB")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AtprotoError(Reason.BAD_DOCUMENT, "a DID document is not JSON") from error


def _entries(document: dict[str, Any], field: str, did: str, fragment: str) -> list[dict[str, Any]]:
    """The entries of a list that go by this fragment, written with or without the DID."""
    found = document.get(field)
    names = (fragment, did + fragment)
    return [e for e in found if isinstance(e, dict) and e.get("id") in names] if isinstance(found, list) else []


def _key(did: str, document: dict[str, Any]) -> PublicKey | None:
    """The first entry counts; a key that cannot be read counts as none."""
    for entry in _entries(document, "verificationMethod", did, "#atproto"):
        kind, text = entry.get("type"), entry.get("publicKeyMultibase")
        if entry.get("controller") != did or not isinstance(kind, str) or not isinstance(text, str):
            return None
        try:
            # "DID", Representation of Public Keys; Legacy Representation.
            return parse_multikey(text) if kind == "Multikey" else parse_legacy_key(kind, text)
        except AtprotoError:
            return None
    return None


def _pds_url(did: str, document: dict[str, Any]) -> str | None:
    for entry in _entries(document, "service", did, "#atproto_pds"):
        url = entry.get("serviceEndpoint")
        good = entry.get("type") == "AtprotoPersonalDataServer" and isinstance(url, str) and host_of(url)
        return url if good else None
    return None


def _handle(document: dict[str, Any]) -> str | None:
    names = document.get("alsoKnownAs")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and name.startswith("at://") and is_handle(name[5:]):
            return name[5:].lower()
    return None
