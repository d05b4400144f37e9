"""How much the relay takes, waits and keeps. Every bound has a name here."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.relay.verdict import STRICT, Policy
from headgate.wire.atproto.did import PLC_DIRECTORY

__all__ = ["TRUSTED_DOMAINS", "HoldLimits", "RelayOptions"]

TRUSTED_DOMAINS = ("*.host.bsky.network",)  # where most accounts of the network are


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """How much may be on its way at once, as the bytes that came in and what it costs to keep them. A reader that would
    take more waits.
    """

    host_events: int = 2_000
    host_bytes: int = 16 << 20
    events: int = 100_000
    bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """The relay's settings. The numbers of hosts and rates are those that operators of the network are used to."""

    policy: Policy = STRICT
    workers: int = 0  # processes that validate; 0: this one does
    hold: HoldLimits = field(default_factory=HoldLimits)
    hold_s: float = 120.0  # how long an event waits for a directory that does not answer
    resync: bool = True  # a commit after a gap goes out as #sync, so that consumers learn of the gap

    plc_url: str = PLC_DIRECTORY
    allow_private: bool = False  # hosts and directories on private addresses, without TLS: for simulations
    private_tls: bool = False  # the streams of these hosts have TLS all the same
    lookups: int = 64  # documents of did:plc asked for at once
    host_lookups: int = 16  # of them, for accounts of one host
    web_lookups: int = 32  # documents of did:web: whoever has the name may take his time
    host_web_lookups: int = 4
    status_lookups: int = 16  # accounts that are new, whose hosts are asked for their status at once; 0: nobody asks
    host_status_lookups: int = 2
    cached_documents: int = 250_000
    refresh_s: float = 2.0  # the shortest time between two lookups of one DID

    account_limit: int = 100
    trusted_account_limit: int = 10_000_000
    trusted_domains: tuple[str, ...] = TRUSTED_DOMAINS  # hosts in these are trusted: `*.host.example`, `host.example`
    new_hosts_per_day: int = 50
    rates: bool = True  # False: hosts may send as fast as they can
    host_bytes_per_s: float = 1 << 20  # of one host, over some seconds; a trusted one may send 32 times as much
    host_cpu_share: float = 0.1  # of a core, to validate what one host sends; of a trusted one, a whole core
    total_per_s: float = 10_000.0  # all hosts together

    backlog: bool = False  # a new host is followed from its oldest event, not from now on
    backoff_s: tuple[float, float] = (1.0, 300.0)  # the first pause after a failure, and the longest
    failures_until_offline: int = 15
    dormant_retry_s: float = 3_600.0  # how often hosts that are offline are tried again
    stale_cursor_s: float = 3 * 86_400.0  # a host not seen for longer is followed from now on, not from its cursor
    idle_timeout_s: float = 30.0  # silence after which a host is pinged
    save_cursors_s: float = 4.0
    connects_at_once: int = 50

    backfill_per_s: float = 10.0  # requests to one host or relay that fills the collection index

    def trusts(self, hostname: str) -> bool:
        """Whether a host is in a trusted domain. `*.host.example` and `.host.example` are the hosts below it,
        `host.example` is also a host itself.
        """
        name = hostname.lower().rpartition(":")[0] or hostname.lower()
        return any(_is_in(name, domain) or _is_in(hostname.lower(), domain) for domain in self.trusted_domains)


def _is_in(hostname: str, domain: str) -> bool:
    below = domain.lower().rstrip(".").removeprefix("*")
    if not below.strip("."):
        return False  # nobody trusts everybody by a slip of the pen
    if below.startswith("."):
        return hostname.endswith(below)
    return hostname == below or hostname.endswith(f".{below}")
