"""TLS: the checked address is dialled, but it is the name that must be on the certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from headgate.demo.network.simulate import Network
from headgate.model import ConnectError
from headgate.relay.limits import Buckets
from headgate.relay.net import Fetcher
from headgate.relay.store import HostRow
from headgate.relay.upstream import Upstream
from headgate.runtime.ending import end
from tests.integration.relay.relay_follow import Sink, eventually, following, run

Contexts = Callable[[str], tuple[ssl.SSLContext, ssl.SSLContext]]


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    """For a name on a certificate: the server's context, and a client's that believes in it."""

    def make(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, SHA256())
        )
        path = tmp_path / f"{name}.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(path)
        return server, ssl.create_default_context(cadata=certificate.public_bytes(Encoding.PEM).decode())

    return make


@pytest.mark.parametrize(("name", "believed"), [("localhost", True), ("other.example", False)])
def test_a_host_is_believed_by_its_name(tmp_path: Path, contexts: Contexts, name: str, believed: bool) -> None:
    async def test() -> None:
        server, client = contexts(name)
        network = Network(hosts=1, accounts=1)
        network.hosts[0].tls = server
        sink = Sink()
        async with network, following(network, tmp_path, sink, crawl=False) as ingest:
            host = network.hostnames[0]
            ingest.store.put_host(HostRow(host))
            upstream = Upstream(
                host,
                ingest.intake,
                network.options(failures_until_offline=2),
                total=Buckets(()),
                tls=client,
                connecting=asyncio.Semaphore(1),
            )
            upstream.from_oldest = True
            running = asyncio.create_task(upstream.run())
            if believed:
                await sink.until(*network.honest)
                await end(running)
            else:
                await eventually(running.done)
                assert (sink.events, upstream.failures) == ([], 2)

    run(test())


def test_a_certificate_of_nobody_knows_whom_is_not_believed(contexts: Contexts) -> None:
    async def test() -> None:
        server, _ = contexts("localhost")
        network = Network(hosts=1, accounts=0)
        network.hosts[0].tls = server
        async with network, Fetcher(allow_private=True) as fetcher:
            with pytest.raises(ConnectError, match="certificate"):
                await fetcher.get(f"https://{network.hostnames[0]}/", limit=100)

    run(test())
