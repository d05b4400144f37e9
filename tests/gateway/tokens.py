"""An issuer of tokens: its keys as a JWK set, in a file or served over HTTP, and tokens signed with them."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

__all__ = ["AUDIENCE", "ISSUER", "Issuer", "served"]

ISSUER, AUDIENCE = "https://issuer.example.com", "kafka"


class Issuer:
    """Signs tokens."""

    def __init__(self, kid: str = "one", *, kind: str = "EC") -> None:
        self.kid = kid
        self.algorithm = "ES256" if kind == "EC" else "RS256"
        self.key: Any = (
            ECKey.generate_key("P-256", {"kid": kid}) if kind == "EC" else RSAKey.generate_key(2048, {"kid": kid})
        )

    def public(self) -> dict[str, Any]:
        return {**self.key.as_dict(private=False), "use": "sig"}

    def key_set(self, *others: dict[str, Any]) -> bytes:
        return json.dumps({"keys": [*others, self.public()]}).encode()

    def file(self, directory: Path) -> Path:
        file = directory / "jwks.json"
        file.write_bytes(self.key_set())
        return file

    def token(self, header: dict[str, Any] | None = None, *, lifetime_s: float = 300, **claims: Any) -> str:
        """A token that is right, but for what is said otherwise; a claim that is None is left out."""
        now = int(time.time())
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + lifetime_s}
        told = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode({"alg": self.algorithm, "kid": self.kid} | (header or {}), told, self.key)


@contextmanager
def served(
    answers: dict[str, bytes], *, status: int = 200, certificate: tuple[Path, Path] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server on 127.0.0.1; gives its address, and the paths that were asked for so far."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = answers[self.path]
            self.send_response(status)
            self.send_header("Location", "/other")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  as it is called there
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
