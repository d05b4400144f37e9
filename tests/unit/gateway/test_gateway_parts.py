"""The parts of the gateway that need no server."""

from __future__ import annotations

from collections import Counter
from random import Random
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from headgate.cli.gateway import _overridden
from headgate.config import InvalidConfigError, parse
from headgate.config.gateway import GatewaySection
from headgate.gateway.budget import Budget
from headgate.gateway.cluster import _rendezvous, _short
from headgate.gateway.configured import options_from
from headgate.gateway.dispatch import failed
from headgate.gateway.handlers import FAILURES, HANDLERS
from headgate.gateway.metrics import LATENCY_BUCKETS_S, Metrics
from headgate.gateway.options import GatewayOptions, HostPort
from headgate.model import UsageError
from headgate.wire.kafka import APIS, Api, RequestHeader, encode_response
from headgate.wire.kafka.error_codes import ErrorCode

SERVED = [api for api in APIS.values() if api.request in HANDLERS]

# -- what fails is answered


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api in SERVED for version in (api.first, api.last)],
    ids=lambda value: value.name if isinstance(value, Api) else f"v{value}",
)
def test_every_api_can_say_that_it_failed(api: Api, version: int) -> None:  # type: ignore[type-arg]
    answer = failed(api, version, api.request(), ErrorCode.UNKNOWN_SERVER_ERROR, "why")
    assert isinstance(answer, api.response)
    assert encode_response(RequestHeader(api.key, version, 1, None, 0), answer)


def test_failures_are_only_for_what_is_served() -> None:
    assert set(FAILURES) <= set(HANDLERS)


# -- memory


class Frame:
    """Somebody who reads a frame, a piece at a time, whenever it may."""

    def __init__(self, budget: Budget, address: str, size: int) -> None:
        self.budget, self.address, self.size, self.got, self.is_waiting = budget, address, size, 0, False

    def resume(self) -> None:
        self.is_waiting = not self.budget.may_read(self)

    def read(self, piece: int) -> None:
        """One piece, if it may."""
        self.is_waiting = self.is_waiting or not self.budget.may_read(self)
        if not self.is_waiting and self.got < self.size:
            piece = min(piece, self.size - self.got)
            self.budget.take(piece, self.address)
            self.got += piece
            if self.got == self.size:
                self.budget.begin(self.size)
                self.budget.finished(self)

    def let_go(self) -> None:
        if self.got == self.size:
            self.budget.end(self.size)
        self.budget.finished(self)
        self.budget.give_back(self.got, self.address)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 120)), max_size=30), st.randoms())
def test_a_budget_lets_every_frame_be_finished(frames: list[tuple[str, int]], random: Random) -> None:
    budget = Budget(100)
    reading = [Frame(budget, address, size) for address, size in frames]
    for _ in range(20 * len(reading)):
        for frame in random.sample(reading, len(reading)):
            frame.read(10)
        # What lies beyond the limit is one frame, and one piece of each.
        assert budget.used < 150 + 120 + 10 * len(frames)
        whole = [frame for frame in reading if frame.got == frame.size]
        for frame in whole[: random.randint(1, 3)]:
            reading.remove(frame)
            frame.let_go()
    assert not reading
    assert budget.used == 0


def test_a_budget_passes_over_who_has_gone() -> None:
    budget = Budget(10)
    budget.take(10, "x")
    first, second, third = (Frame(budget, "x", 5) for _ in range(3))
    for frame in (first, second, third):
        frame.read(1)
    assert [frame.is_waiting for frame in (first, second, third)] == [False, True, True]
    second.let_go()
    first.let_go()
    assert not third.is_waiting


def test_one_address_cannot_take_everything() -> None:
    budget = Budget(100)
    greedy = [Frame(budget, "greedy", 30) for _ in range(10)]
    for _ in range(30):
        for frame in greedy:
            frame.read(1)
    assert budget.used <= 50 + 30 + 10
    modest = Frame(budget, "modest", 5)
    modest.read(5)
    assert modest.got == 5


# -- cluster


@given(st.sets(st.integers(1, 1000), min_size=2, max_size=6), st.text(max_size=20))
def test_only_what_belonged_to_the_leaver_moves(nodes: set[int], key: str) -> None:
    before = sorted(nodes)
    chosen = before[_rendezvous(key, tuple(before))]
    for gone in before:
        after = [node for node in before if node != gone]
        now = after[_rendezvous(key, tuple(after))]
        assert now == chosen or gone == chosen


def test_partitions_are_spread() -> None:
    counts = Counter(_rendezvous(f"partition {number}", (1, 2, 3, 4)) for number in range(4000))
    assert all(800 < count < 1200 for count in counts.values())


# -- options, configuration, metrics


def test_passwords_are_not_shown() -> None:
    options = GatewayOptions(postgres_url="postgres://u:hidden@h/d", users={"u": "hidden"})
    assert "hidden" not in repr(options)


@pytest.mark.parametrize(("address", "text"), [(HostPort("h", 1), "h:1"), (HostPort("::1", 2), "[::1]:2")], ids=str)
def test_addresses_are_written_as_clients_write_them(address: HostPort, text: str) -> None:
    assert str(address) == text


def test_the_configuration_becomes_options() -> None:
    config = parse(
        '[gateway]\nhost = ["127.0.0.1", "::1"]\nport = 0\nadvertised = "[::1]:9999"\nmax_memory = "200MB"\n'
        'stop_grace = "3s"\n[gateway.users]\nalice = "longenough"\n'
    )
    options = options_from(config.gateway, "url")
    assert options.hosts == ("127.0.0.1", "::1")
    assert options.advertised == HostPort("::1", 9999)
    assert (options.max_inflight_bytes, options.drain_timeout_s) == (200_000_000, 3.0)
    assert options.users == {"alice": "longenough"}
    assert options_from(parse("").gateway, "url") == GatewayOptions(postgres_url="url")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('host = "0.0.0.0"', "users are required"),
        ('host = "0.0.0.0"\nusers = { a = "longenough" }', "set advertised"),
        ('users = { a = "short" }', "at least 8"),
        ('tls_cert = "a.pem"', "go together"),
        ('advertised = "nowhere"', "advertised"),
        ('max_memory = "2MiB"', "room for one request"),
        ("host = []", "at least one address"),
        ('host = "0.0.0.0"\nallow_anonymous = true', "set advertised"),
        ('tls_client_auth = "require"', "needs tls_client_ca"),
        ('tls_client_auth = "maybe"', "tls_client_auth"),
        ('connections_max_reauth = "0s"', "connections_max_reauth"),
    ],
    ids=["open", "unreachable", "password", "half-tls", "no-port", "memory", "nowhere", "told", "ca", "auth", "zero"],
)
def test_configurations_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says):
        parse(f"[gateway]\n{text}\n")


_PUBLIC = 'host = "10.0.0.1"\n'
_MUTUAL = 'tls_cert = "a"\ntls_key = "b"\ntls_client_ca = "c"\ntls_client_auth = '


@pytest.mark.parametrize(
    ("text", "is_guarded", "knows_clients"),
    [
        ("", False, False),
        ("allow_anonymous = false", True, True),
        (_PUBLIC + "allow_anonymous = false", True, True),
        (_PUBLIC + "allow_anonymous = true", False, True),
        (_PUBLIC + 'users = { a = "longenough" }', True, True),
        ('allow_anonymous = true\nusers = { a = "longenough" }', False, True),
        (_PUBLIC + _MUTUAL + '"require"', True, True),
        (_PUBLIC + _MUTUAL + '"request"', True, True),
    ],
)
def test_who_must_log_in(text: str, is_guarded: bool, knows_clients: bool) -> None:
    section = parse(f"[gateway]\n{text}\n").gateway
    options = options_from(section, "url")
    assert (options.is_guarded, options.knows_clients, section.is_open) == (is_guarded, knows_clients, not is_guarded)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"host": ["0.0.0.0"]}, "users are required"), ({"advertised": "no-port"}, "should match pattern")],
    ids=["open", "advertised"],
)
def test_options_of_the_command_are_checked_like_the_file(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        _overridden(GatewaySection(), **options)
    given = GatewaySection(port=1, users={"a": SecretStr("longenough")})
    assert _overridden(given, host=None, port=7, advertised=None) == given.model_copy(update={"port": 7})


def test_latencies_are_counted_in_their_bucket() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.003, 99.0):
        metrics.appended(seconds)
    told = metrics.as_dict()
    assert told["append_buckets"][0] == 1
    assert told["append_buckets"][LATENCY_BUCKETS_S.index(0.005)] == 2
    assert told["append_buckets"][-1] == told["append_count"] == 3


def test_ids_of_clusters_are_short() -> None:
    assert len(_short(uuid4())) == 22
