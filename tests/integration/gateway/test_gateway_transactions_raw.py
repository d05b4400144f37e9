"""Transactions request by request: fences, ends, isolation, and what no client would send."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from headgate.gateway.transactions import TransactionSettings
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import leadership as lead
from headgate.wire.kafka.messages.cluster import METADATA, AskedTopic, MetadataRequest
from headgate.wire.kafka.messages.groups import DELETE_GROUPS, DeleteGroupsRequest
from headgate.wire.kafka.messages.membership import FIND_COORDINATOR, FindCoordinatorRequest
from headgate.wire.kafka.messages.produce import INIT_PRODUCER_ID, InitProducerIdRequest
from headgate.wire.kafka.messages.session import API_VERSIONS, ApiVersionsRequest
from headgate.wire.kafka.messages.transactions import (
    ADD_PARTITIONS_TO_TXN,
    WRITE_TXN_MARKERS,
    AddPartitionsToTxnRequest,
    TransactionPartitions,
    TransactionTopic,
    WriteTxnMarkersRequest,
    WrittenMarker,
    WrittenMarkerTopic,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, running
from tests.gateway.transactional import RawProducer, fetch_committed, latest, stored_offset
from tests.gateway.workers import wait_until
from tests.stock import both_servers

TIMEOUT_S = 60.0


@pytest.fixture(params=both_servers)
def gateway(request: pytest.FixtureRequest, gateway: GatewayThread) -> GatewayThread:
    """On the embedded server and on Debian's."""
    return gateway if request.param == "embedded" else request.getfixturevalue("stock_gateway")


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[RawClient]:
    with RawClient(gateway.port) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"x-{uuid4().hex[:10]}"


def test_versions_and_the_feature_are_offered(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = client.ask(API_VERSIONS, 4, request)
    assert {24, 25, 26, 27, 28} <= {each.api_key for each in answer.api_keys}
    (feature,) = answer.finalized_features
    assert (feature.name, feature.max_version_level) == ("transaction.version", 2)


def test_any_gateway_is_the_coordinator(client: RawClient, gateway: GatewayThread) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=("x", ""))
    found, nameless = client.ask(FIND_COORDINATOR, 4, request).coordinators
    assert (found.error_code, found.port) == (0, gateway.port)
    assert nameless.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_timeouts_have_limits(client: RawClient, name: str, timeout_ms: int) -> None:
    assert RawProducer(client, name, timeout_ms=timeout_ms).given.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("bad", ["", "a\0b", "x" * 1001])
def test_names_that_are_none(client: RawClient, bad: str) -> None:
    assert RawProducer(client, bad).given.error_code == ErrorCode.INVALID_REQUEST


def test_markers_and_isolation(client: RawClient, topic: str, name: str) -> None:
    client.create(topic)
    writer = RawProducer(client, name)
    assert writer.add(topic) == 0
    assert writer.write(topic, b"a", b"b") == 0
    answer, shown = fetch_committed(client, topic)
    assert (answer.high_watermark, answer.last_stable_offset, shown) == (2, 0, [])
    assert [latest(client, topic, isolation=each) for each in (0, 1)] == [2, 0]
    assert latest(client, topic, isolation=1, timestamp=0) == -1, "a time in an open transaction"
    assert latest(client, topic, isolation=0, timestamp=0) == 0
    assert latest(client, topic, isolation=1, timestamp=-3) == -1
    assert writer.end(commit=False) == 0
    assert writer.add(topic) == 0
    assert writer.write(topic, b"c") == 0
    assert writer.end(commit=True) == 0
    answer, shown = fetch_committed(client, topic)
    assert (answer.high_watermark, answer.last_stable_offset, shown) == (5, 5, [b"c"])
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(writer.producer_id, 0)]
    # From the middle of the aborted one, and from behind it.
    answer, shown = fetch_committed(client, topic, 1)
    assert (shown, len(answer.aborted_transactions)) == ([b"c"], 1)
    answer, shown = fetch_committed(client, topic, 3)
    assert (shown, len(answer.aborted_transactions)) == ([b"c"], 0)
    assert latest(client, topic, isolation=1, timestamp=-3) in (0, 3)


def test_who_may_not_write(client: RawClient, topic: str, name: str) -> None:
    client.create(topic)
    writer = RawProducer(client, name)
    assert writer.write(topic, b"x") == ErrorCode.INVALID_TXN_STATE, "the partition was not added"
    assert writer.add(topic) == 0
    assert writer.write(topic, b"x", producer_id=writer.producer_id + 10**6) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (writer.epoch + 1, writer.epoch - 1):
        code = writer.write(topic, b"x", producer_epoch=epoch)
        assert code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_RECORD)
    assert writer.write(topic, b"x", is_transactional=False) == ErrorCode.INVALID_TXN_STATE
    assert writer.write(topic, b"x", is_control=True) == ErrorCode.INVALID_RECORD
    assert writer.write(topic, b"x", producer_id=-1, producer_epoch=-1, base_sequence=-1) == ErrorCode.INVALID_RECORD
    nameless = RawProducer(client, f"{name}-2")
    nameless.name = ""
    with pytest.raises(AssertionError):  # the request as a whole is refused, or its connection closed
        assert nameless.write(topic, b"x") == 0
    assert writer.end(commit=True) == 0
    assert writer.write(topic, b"late") == ErrorCode.INVALID_TXN_STATE
    assert fetch_committed(client, topic)[1] == []


def test_a_batch_that_was_sent_twice_is_there_once(client: RawClient, topic: str, name: str) -> None:
    """Also when its transaction is over by then."""
    client.create(topic)
    writer = RawProducer(client, name)
    writer.add(topic)
    first = writer.written(topic, b"a", base_sequence=0)
    assert writer.written(topic, b"a", base_sequence=0).base_offset == first.base_offset
    assert writer.end(commit=True) == 0
    again = writer.written(topic, b"a", base_sequence=0)
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert fetch_committed(client, topic)[1] == [b"a"]


def test_ends(client: RawClient, topic: str, name: str) -> None:
    client.create(topic)
    writer = RawProducer(client, name)
    assert writer.end(commit=True) == ErrorCode.INVALID_TXN_STATE, "nothing was begun"
    assert writer.add(topic) == 0
    assert writer.end(commit=True) == 0
    assert writer.end(commit=True) == 0, "it is idempotent"
    assert writer.end(commit=False) == ErrorCode.INVALID_TXN_STATE
    assert writer.add(topic) == 0
    writer.epoch += 1
    assert writer.end(commit=True) == ErrorCode.PRODUCER_FENCED
    assert writer.end(commit=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH, "as old versions say it"
    assert writer.add(topic, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    writer.epoch -= 1
    writer.producer_id += 10**6
    assert writer.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    writer.producer_id -= 10**6
    unknown = RawProducer(client, f"{name}-2")
    unknown.name = f"{name}-3"
    assert unknown.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert unknown.add(topic) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert writer.end(commit=False) == 0


def test_a_producer_that_begins_again(client: RawClient, topic: str, name: str) -> None:
    client.create(topic)
    writer = RawProducer(client, name)
    writer.add(topic)
    assert writer.write(topic, b"gone") == 0
    zombie = writer.init_again(producer_id=writer.producer_id, producer_epoch=writer.epoch + 5)
    assert zombie.error_code == ErrorCode.PRODUCER_FENCED
    assert fetch_committed(client, topic)[0].last_stable_offset == 0, "a zombie has aborted it"
    again = writer.init_again(producer_id=writer.producer_id, producer_epoch=writer.epoch)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, writer.producer_id, writer.epoch + 1)
    answer, shown = fetch_committed(client, topic)
    assert (answer.last_stable_offset, shown) == (2, [])
    assert writer.write(topic, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    repeated = writer.init_again(producer_id=writer.producer_id, producer_epoch=writer.epoch)
    assert repeated.producer_epoch == again.producer_epoch, "the same question has the same answer"
    old = client.ask(
        INIT_PRODUCER_ID,
        3,
        InitProducerIdRequest(name, 60_000, producer_id=writer.producer_id, producer_epoch=writer.epoch + 9),
    )
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_partitions_are_added_all_or_none(client: RawClient, topic: str, name: str) -> None:
    client.ask(METADATA, 9, MetadataRequest(topics=(AskedTopic(name=topic),)))
    writer = RawProducer(client, name)
    topics = (TransactionTopic(topic, (0, 99)), TransactionTopic(f"{topic}-none", (0,)))

    def added(version: int, *topics: TransactionTopic, verify: bool = False, epoch: int | None = None) -> list[int]:
        who = writer.producer_id, writer.epoch if epoch is None else epoch
        batched = AddPartitionsToTxnRequest((TransactionPartitions(name, *who, verify, topics),))
        single = AddPartitionsToTxnRequest((), name, *who, topics)
        answer = client.ask(ADD_PARTITIONS_TO_TXN, version, batched if version >= 4 else single)
        results = answer.results_by_topic_v3_and_below
        if version >= 4:
            results = answer.results_by_transaction[0].topic_results
        return [each.partition_error_code for topic in results for each in topic.results_by_partition]

    skipped, missing = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for version in range(6):
        assert added(version, *topics) == [skipped, missing, missing]
    assert added(4, topics[0].__class__(topic, (0,)), verify=True) == [ErrorCode.INVALID_TXN_STATE]
    assert added(5, TransactionTopic(topic, (0,)), verify=True) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert writer.end(commit=True) == ErrorCode.INVALID_TXN_STATE, "nothing was begun"
    assert added(5, TransactionTopic(topic, (0,))) == [0]
    assert added(5, TransactionTopic(topic, (0,)), verify=True) == [0]
    assert added(5, TransactionTopic(topic, (0,)), epoch=7) == [ErrorCode.PRODUCER_FENCED]
    assert writer.end(commit=False) == 0


def test_offsets_are_pending_until_the_end(client: RawClient, topic: str, name: str) -> None:
    client.create(topic)
    group, writer = f"g-{name}", RawProducer(client, name)
    assert writer.commit_offset(group, topic, 3) == ErrorCode.INVALID_TXN_STATE, "the group was not added"
    for offset, commits in ((5, True), (7, False), (9, True)):
        before = stored_offset(client, group, topic)
        assert writer.add_offsets(group) == 0
        assert writer.commit_offset(group, topic, offset - 1) == 0
        assert writer.commit_offset(group, topic, offset) == 0, "the last one counts"
        assert stored_offset(client, group, topic) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert stored_offset(client, group, topic, stable=False) == before
        assert writer.end(commit=commits) == 0
        assert stored_offset(client, group, topic) == ((0, offset) if commits else before)
    assert writer.add_offsets(group) == 0
    assert writer.commit_offset(group, f"{topic}-none", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    writer.epoch += 1
    assert writer.commit_offset(group, topic, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    writer.epoch -= 1
    code = writer.commit_offset(group, topic, 1, generation_id=3, member_id="nobody")
    assert code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    assert writer.end(commit=True) == 0
    assert stored_offset(client, group, topic) == (0, 9)


def test_a_group_that_is_deleted_gets_no_offsets_later(client: RawClient, topic: str, name: str) -> None:
    """Not even if one of that name comes to be meanwhile."""
    client.create(topic)
    group, writer = f"g-{name}", RawProducer(client, name)
    assert writer.add_offsets(group) == writer.commit_offset(group, topic, 5) == 0
    deleted = client.ask(DELETE_GROUPS, 2, DeleteGroupsRequest((group,)))
    assert deleted.results[0].error_code == 0
    other = RawProducer(client, f"{name}-2")
    assert other.add_offsets(group) == other.commit_offset(group, topic, 3) == other.end(commit=True) == 0
    assert writer.end(commit=True) == 0
    assert stored_offset(client, group, topic) == (0, 3)


def test_the_second_protocol(client: RawClient, topic: str, name: str) -> None:
    """Partitions and groups join by being written to, and every transaction has an epoch of its own."""
    client.create(topic)
    group, writer = f"g-{name}", RawProducer(client, name, init_version=5)
    first = writer.epoch
    assert writer.write(topic, b"a", version=12) == 0
    assert writer.commit_offset(group, topic, 4, version=5) == 0
    assert writer.end(commit=True, version=5) == 0
    assert writer.epoch == first + 1
    writer.epoch = first
    assert writer.end(commit=True, version=5) == 0, "whoever did not hear the answer hears it again"
    assert writer.epoch == first + 1
    assert stored_offset(client, group, topic) == (0, 4)
    assert writer.write(topic, b"late", version=12, producer_epoch=first, base_sequence=7) == (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert writer.write(topic, b"b", version=12) == 0
    assert writer.end(commit=False, version=5) == 0
    assert writer.end(commit=False, version=5) == 0, "what is empty can be aborted"
    assert writer.epoch == first + 3
    assert writer.end(commit=True, version=5) == ErrorCode.INVALID_TXN_STATE
    assert fetch_committed(client, topic)[1] == [b"a"]


def test_a_client_of_the_first_protocol_joins_nothing_by_writing(client: RawClient, topic: str, name: str) -> None:
    """Its late batch would begin a transaction that nobody ends."""
    client.create(topic)
    writer = RawProducer(client, name, init_version=4)
    assert writer.write(topic, b"a", version=12) == ErrorCode.INVALID_TXN_STATE


def test_what_stays_open_is_aborted(fresh_database: str, topic: str, name: str) -> None:
    settings = TransactionSettings(sweep_interval_s=0.1)
    with running(fresh_database, transaction_settings=settings) as gateway, RawClient(gateway.port) as client:
        client.create(topic)
        short = RawProducer(client, name, timeout_ms=200)
        patient = RawProducer(client, f"{name}-2")
        assert short.add(topic) == short.write(topic, b"a") == 0
        assert patient.add(topic) == patient.write(topic, b"b") == 0
        wait_until(lambda: fetch_committed(client, topic)[0].last_stable_offset == 1, TIMEOUT_S, "it stays open")
        assert short.end(commit=True) == ErrorCode.PRODUCER_FENCED
        again = short.init_again(producer_id=short.producer_id, producer_epoch=short.epoch)
        assert again.error_code == 0, "its place was taken by nobody"
        assert patient.end(commit=True) == 0
        assert fetch_committed(client, topic)[1] == [b"b"]


def test_one_that_cannot_be_aborted_holds_up_no_other(fresh_database: str, topic: str, name: str) -> None:
    """And is told: the gateway has trouble until it can be."""
    settings = TransactionSettings(sweep_interval_s=0.1)
    with (
        running(fresh_database, transaction_settings=settings) as gateway,
        RawClient(gateway.port) as client,
        psycopg.connect(fresh_database, autocommit=True) as connection,
    ):
        client.create(topic)
        # Whatever it may be, for one of them.
        connection.execute(
            "create function fail() returns trigger language plpgsql as $$ begin raise 'no'; end $$;"
            " create trigger fail before update on kafka.transactional_ids for each row"
            f" when (old.state = 'Ongoing' and new.state <> 'Ongoing' and old.transactional_id = '{name}-1')"
            " execute function fail()"
        )
        writers = [RawProducer(client, f"{name}-{number}", timeout_ms=100) for number in (1, 2)]
        assert [each.add(topic) for each in writers] == [each.write(topic, b"a") for each in writers] == [0, 0]
        state = f"select state from kafka.transactions where transactional_id = '{name}-2'"
        wait_until(lambda: connection.execute(state.encode()).fetchone() == ("CompleteAbort",), TIMEOUT_S, "held up")
        troubles = gateway.gateway.services.store.health.troubles
        wait_until(lambda: "transactions" in troubles, TIMEOUT_S, "nobody is told")
        connection.execute("drop trigger fail on kafka.transactional_ids")
        wait_until(
            lambda: fetch_committed(client, topic)[0].last_stable_offset == 4, TIMEOUT_S, "it is not tried again"
        )
        wait_until(lambda: "transactions" not in troubles, TIMEOUT_S, "it does not recover")


def test_readers_wait_for_the_end(client: RawClient, topic: str, name: str) -> None:
    """A long poll is answered when the transaction ends, not when its records come."""
    client.create(topic)
    writer = RawProducer(client, name)
    assert writer.add(topic) == writer.write(topic, b"a") == 0
    with RawClient(client.socket.getpeername()[1]) as reader:
        partition = lead.AskedProducersTopic(name=topic, partition_indexes=(0,))
        (state,) = (
            reader.ask(lead.DESCRIBE_PRODUCERS, 0, lead.DescribeProducersRequest((partition,)))
            .topics[0]
            .partitions[0]
            .active_producers
        )
        assert (state.producer_id, state.current_txn_start_offset) == (writer.producer_id, 0)
        assert fetch_committed(reader, topic, wait_ms=100)[1] == []
        assert writer.end(commit=True) == 0
        assert fetch_committed(reader, topic, wait_ms=20_000)[1] == [b"a"]


def test_administrators_see_and_abort(client: RawClient, topic: str, name: str) -> None:
    client.create(topic)
    writer = RawProducer(client, name)
    assert writer.add(topic) == writer.write(topic, b"a") == 0

    def listed(**filters: object) -> list[str]:
        request = lead.ListTransactionsRequest(**filters)  # type: ignore[arg-type]
        answer = client.ask(lead.LIST_TRANSACTIONS, 2, request)
        return [each.transactional_id for each in answer.transaction_states if each.transactional_id == name]

    assert listed() == listed(state_filters=("Ongoing",)) == listed(duration_filter=0) == [name]
    assert (
        listed(transactional_id_pattern=name[:-1] + ".") == listed(producer_id_filters=(writer.producer_id,)) == [name]
    )
    assert listed(state_filters=("Empty",)) == listed(duration_filter=3_600_000) == []
    assert listed(transactional_id_pattern="no") == listed(producer_id_filters=(-5,)) == []
    assert listed(state_filters=("Nonsense",)) == []
    broken = client.ask(lead.LIST_TRANSACTIONS, 2, lead.ListTransactionsRequest(transactional_id_pattern="("))
    assert broken.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    known, unknown = client.ask(
        lead.DESCRIBE_TRANSACTIONS, 0, lead.DescribeTransactionsRequest((name, "nobody"))
    ).transaction_states
    assert (known.transaction_state, known.producer_epoch, known.transaction_timeout_ms) == ("Ongoing", 0, 60_000)
    assert known.topics == (lead.TransactionTopic(topic, (0,)),)
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def mark(epoch: int, *, commit: bool = False) -> int:
        marker = WrittenMarker(writer.producer_id, epoch, commit, (WrittenMarkerTopic(topic, (0,)),))
        answer = client.ask(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest((marker,)))
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    assert mark(writer.epoch, commit=True) == ErrorCode.INVALID_TXN_STATE
    assert mark(writer.epoch - 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetch_committed(client, topic)[0].last_stable_offset == 0
    assert mark(writer.epoch) == 0
    assert mark(writer.epoch) == 0, "there is nothing more to abort"
    answer, shown = fetch_committed(client, topic)
    assert (answer.last_stable_offset, shown) == (2, [])
    assert writer.end(commit=True) == ErrorCode.PRODUCER_FENCED


def test_two_gateways_are_one(fresh_database: str, topic: str, name: str) -> None:
    """Begun at one, written through both, ended at the other; readers at both see the same."""
    with (
        running(fresh_database) as one,
        running(fresh_database) as two,
        RawClient(one.port) as first,
        RawClient(two.port) as second,
    ):
        first.create(topic)
        wait_until(lambda: _knows(second, topic), TIMEOUT_S, "the second does not hear of the topic")
        assert fetch_committed(second, topic)[0].last_stable_offset == 0
        writer = RawProducer(first, name)
        assert writer.add(topic) == writer.write(topic, b"a") == 0
        writer.client = second
        assert writer.write(topic, b"b") == 0
        for client in (first, second):
            answer, shown = fetch_committed(client, topic, wait_ms=200)
            assert (answer.last_stable_offset, shown) == (0, [])
        assert writer.end(commit=True) == 0
        for client in (first, second):
            assert fetch_committed(client, topic, wait_ms=20_000)[1] == [b"a", b"b"]
        assert writer.add(topic) == writer.write(topic, b"c") == 0
        writer.client = first
        assert writer.end(commit=False) == 0
        plain = RawProducer(second, f"{name}-2")
        assert plain.add(topic) == plain.write(topic, b"d") == plain.end(commit=True) == 0
        for client in (first, second):
            wait_until(lambda each=client: fetch_committed(each, topic)[1] == [b"a", b"b", b"d"], TIMEOUT_S, "differs")  # type: ignore[misc]


def test_of_producers_that_begin_at_once_one_is_left(fresh_database: str, topic: str, name: str) -> None:
    """At two gateways: each has an epoch of its own, and whoever has the greatest may write."""
    with running(fresh_database) as one, running(fresh_database) as two, RawClient(one.port) as client:
        client.create(topic)

        def begin(number: int) -> RawProducer:
            with RawClient((one, two)[number % 2].port) as own:
                return RawProducer(own, name)

        with ThreadPoolExecutor(8) as threads:
            producers = list(threads.map(begin, range(16)))
        begun = sorted((each for each in producers if each.given.error_code == 0), key=lambda each: each.epoch)
        assert len(begun) > 1
        assert len({each.epoch for each in begun}) == len(begun)
        for each in producers:
            each.client = client
        assert {each.add(topic) for each in begun[:-1]} == {ErrorCode.PRODUCER_FENCED}
        last = begun[-1]
        assert last.add(topic) == last.write(topic, b"a") == last.end(commit=True) == 0


def test_a_log_that_is_locked_leaves_readers_alone(fresh_database: str, topic: str, name: str) -> None:
    """Transactions wait for the lock with few connections, and are done when it is free."""
    with running(fresh_database) as gateway, RawClient(gateway.port) as client:
        client.create(topic)
        writers = []
        for number in range(12):
            writers.append(RawProducer(RawClient(gateway.port), f"{name}-{number}"))
            assert writers[-1].add(topic) == writers[-1].write(topic, b"a") == 0
        with psycopg.connect(fresh_database) as holder, ThreadPoolExecutor(12) as threads:
            holder.execute("select from kafka.head for update")
            ends = [threads.submit(each.end, commit=True) for each in writers]
            waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            with psycopg.connect(fresh_database, autocommit=True) as watcher:
                wait_until(lambda: watcher.execute(waiting).fetchone() >= (2,), TIMEOUT_S, "nobody waits")  # type: ignore[operator]
            assert stored_offset(client, "nobody", topic) == (0, -1)
            assert latest(client, topic, isolation=1) == 0
            holder.rollback()
            assert [each.result(TIMEOUT_S) for each in ends] == [0] * 12
        assert len(fetch_committed(client, topic)[1]) == 12
        for each in writers:
            each.client.socket.close()


def _knows(client: RawClient, topic: str) -> bool:
    answer = client.ask(METADATA, 9, MetadataRequest((AskedTopic(name=topic),), allow_auto_topic_creation=False))
    return bool(answer.topics[0].error_code == 0)


def test_an_older_gateway_keeps_transactions_away(fresh_database: str, name: str) -> None:
    with (
        running(fresh_database) as gateway,
        RawClient(gateway.port) as client,
        psycopg.connect(fresh_database, autocommit=True) as connection,
    ):
        joined = "select kafka.broker_join('old.example', 1, gen_random_uuid(), '1 hour')"
        connection.execute(joined)  # as the version before says it
        assert RawProducer(client, name).given.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        connection.execute("delete from kafka.brokers where host = 'old.example'")
        assert RawProducer(client, name).given.error_code == 0
        with pytest.raises(psycopg.errors.FeatureNotSupported):  # and one that was thought dead reads no more
            connection.execute("select * from kafka.fetch(array[1], array[0::bigint], array[1000], 1000)")


def test_a_database_that_goes_away_is_an_outage_of_the_coordinator(
    gateway: GatewayThread, client: RawClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RawProducer(client, name)
    transactions = gateway.gateway.services.transactions

    class Gone:
        def connection(self) -> object:
            raise psycopg.OperationalError("gone")

    monkeypatch.setattr(transactions._store, "_pool", Gone())
    assert writer.end(commit=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert writer.add("any") in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
