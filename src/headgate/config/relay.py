"""The table `[relay]`: a relay of the AT Protocol."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from headgate.config.base import Duration, SecretText, Section, Size

__all__ = ["RelaySection"]


# An address, or a range of them; kept as it is written.
Network = Annotated[str, AfterValidator(lambda text: str(ip_network(text)))]


RelayUrl = Annotated[str, Field(pattern=r"^https?://.+$")]

Rule = Literal["strict", "lenient", "off"]


class RelayRules(Section):
    """Rules that there can be two minds about, each in a mode of its own, in place of the policy's."""

    host: Rule | None = Field(None, description="An event comes from the account's own host.")
    signature: Rule | None = Field(None, description="The account's key has signed it.")
    future: Rule | None = Field(None, description="A rev is not of the future.")
    records: Rule | None = Field(None, description="The records are there, no bigger than allowed, in strict DAG-CBOR.")
    prev_data: Rule | None = Field(None, description="Every commit but the first has `prevData`, the state before it.")
    inversion: Rule | None = Field(None, description="Undoing the operations of a commit leads to its `prevData`.")
    chain: Rule | None = Field(None, description="`prevData` is the state that was seen last.")
    inactive: Rule | None = Field(None, description="An account that is not active is silent.")
    handle: Rule | None = Field(None, description="An #identity has the handle of the DID document.")


class RelayLimits(Section):
    """How much hosts may send and have, how long things may take, and how often they are tried again."""

    account_limit: int = Field(100, ge=0, description="Accounts that a host may have.")
    trusted_account_limit: int = Field(10_000_000, ge=0, description="Accounts of a host that is trusted.")
    new_hosts_per_day: int = Field(
        50, ge=0, description="Hosts taken in a day that ask by themselves; operators may exceed it."
    )
    rates: bool = Field(True, description="Whether hosts are held to their rates.")
    total_per_s: float = Field(10_000.0, gt=0, description="Events per second of all hosts together.")
    host_bytes_per_s: Size = Field(1 << 20, ge=1, description="Of one host, over 16 s; a trusted one 32 times as much.")
    host_cpu_share: float = Field(0.1, gt=0, description="Share of a core to validate one host; trusted: 10 times.")
    lookups: int = Field(64, ge=1, description="Documents of did:plc asked for at once.")
    host_lookups: int = Field(16, ge=1, description="Documents of did:plc asked for at once, for one host.")
    web_lookups: int = Field(32, ge=1, le=48, description="Documents of did:web asked for at once.")
    host_web_lookups: int = Field(4, ge=1, description="Documents of did:web asked for at once, for one host.")
    status_lookups: int = Field(16, ge=0, le=64, description="Hosts asked for a new account's status at once; 0: none.")
    host_status_lookups: int = Field(2, ge=1, description="Statuses asked of one host at once.")
    cached_documents: int = Field(250_000, ge=1, description="DID documents in memory.")
    host_events: int = Field(2_000, ge=1, description="Events of a host on their way.")
    host_bytes: Size = Field(16 << 20, ge=1, description="Bytes of a host's events on their way.")
    events: int = Field(100_000, ge=1, description="Events of all hosts on their way.")
    bytes: Size = Field(256 << 20, ge=1, description="Bytes of all hosts' events on their way.")
    hold: Duration = Field(120.0, description="How long an event waits for a directory that does not answer.")
    first_backoff: Duration = Field(1.0, gt=0, description="The first pause after a host failed.")
    longest_backoff: Duration = Field(300.0, gt=0, description="The longest pause after a host failed.")
    failures_until_offline: int = Field(
        15, ge=1, description="Failures in a row until a host is tried only now and then."
    )
    dormant_retry: Duration = Field(3_600.0, gt=0, description="How often hosts that are offline are tried again.")
    stale_cursor: Duration = Field(3 * 86_400.0, gt=0, description="A host away for longer is followed from now on.")
    idle_timeout: Duration = Field(30.0, gt=0, description="Silence after which a host is pinged.")
    save_cursors: Duration = Field(4.0, gt=0, description="How often the hosts' cursors are saved.")
    backfill_per_s: float = Field(10.0, gt=0, description="Requests to a host or relay that fills the index.")
    connects_at_once: int = Field(50, ge=1, description="Hosts that are being connected to.")


class RelaySection(Section):
    """The relay: hosts in, one verified stream out."""

    enabled: bool = Field(False, description="Whether `headgate run` starts it, in a process of its own.")
    data_dir: Path | None = Field(None, description="Log, store and index; `relay` in the project's unless given.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(2470, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: SecretText | None = Field(None, min_length=8, description="Bearer token of operators; none: no operators.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    store: SecretText | None = Field(None, description="A `postgresql://` URL; SQLite in `data_dir` unless given.")
    store_file: Path | None = Field(None, description="Read `store` from this file.")
    crawl: tuple[str, ...] = Field((), description='Hosts to follow: `["pds.example"]`. Others ask by themselves.')
    bootstrap: str = Field("", pattern=r"^(https?://.+)?$", description="A relay whose hosts to follow, too.")
    siblings: tuple[RelayUrl, ...] = Field((), description="Relays that are told of hosts which ask to be crawled.")
    trusted_domains: tuple[str, ...] = Field(
        ("*.host.bsky.network",), description="Hosts in these may have many accounts, and send fast."
    )
    limits: RelayLimits = Field(default_factory=RelayLimits, description="Limits, rates and intervals.")
    rules: RelayRules = Field(default_factory=RelayRules, description="Modes of single rules.")
    plc_url: str = Field("https://plc.directory", pattern=r"^https?://.+$", description="The directory of did:plc.")
    policy: Literal["strict", "lenient"] = Field(
        "strict", description="`lenient` lets hosts of before Sync 1.1 through; signatures are checked all the same."
    )
    workers: int = Field(0, ge=0, le=64, description="Processes that validate; 0: the relay's own.")
    retention: Duration = Field(72 * 3600.0, description="How long events are kept for those who come back.")
    initial_seq: int = Field(
        1, ge=1, le=2**53 - 1, description="No event gets a lower number: for a relay that takes the place of another."
    )
    max_log_bytes: Size = Field(0, description="The most that events on disk may take; 0: no limit.")
    max_connections: int = Field(1000, ge=1, description="Consumers at a time; further ones are refused.")
    max_per_address: int = Field(100, ge=0, description="Consumers at a time from one address; 0: no limit.")
    proxies: tuple[Network, ...] = Field(
        ("127.0.0.0/8", "::1/128"), description="Addresses of proxies, whose `X-Forwarded-For` is believed."
    )
    max_buffer: Size = Field(16 << 20, ge=1 << 16, description="What may wait for a consumer; then it is cut off.")
    backlog: bool = Field(False, description="Follow new hosts from their oldest event, not from now on.")
    allow_private: bool = Field(False, description="Hosts on private addresses, without TLS: for trying.")
