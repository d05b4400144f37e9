"""What `explain` says of a row is what the router and the task do with it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.destinations.base import TopicDefaults
from headgate.model import record
from headgate.model.destination import Destination
from headgate.pipeline.routing.admission import Admission, Patterns
from headgate.pipeline.routing.explain import explain_row
from headgate.pipeline.routing.router import KEY, KEY_STREAM, KEY_TOPIC, Router
from headgate.pipeline.routing.rules import Encoding, Lookup, Rules
from headgate.pipeline.routing.settings import KeyPaths, RoutingSettings

values = st.none() | st.sampled_from(["", "a", "b", "c", "d e", "*", "a.b"])
keys = st.none() | st.sampled_from(["0", "1", "2", "-1", "x", "²", "007", "+1"]) | st.text("0123456789-", max_size=20)


@given(st.lists(st.tuples(values, values, keys), min_size=1, max_size=8), st.sampled_from(["bytes", "partition_id"]))
def test_columns(rows: list[tuple[str | None, str | None, str | None]], encoding: Encoding) -> None:
    rules = Rules(
        by_stream_column="s", by_topic_column="t", default_stream="ds", default_topic="dt", partition_key_column="p",
        encoding=encoding,
    )  # fmt: skip
    admission = Admission("denylist", denied=Patterns.of([("*", "b"), ("c", "*")]))
    paths = KeyPaths(stream="s", topic="t", partition_key="p")
    settings = RoutingSettings(paths, rules, admission, "error", "dlq", defaults=TopicDefaults(2))
    names = [record.MESSAGE_ID, record.PAYLOAD, KEY_STREAM, KEY_TOPIC, KEY]
    arrays: list[Any] = [pa.array([f"m{n}" for n in range(len(rows))]), pa.array([b""] * len(rows), pa.binary())]
    arrays += [pa.array(list(column), pa.string()) for column in zip(*rows, strict=True)]
    routed = Router(rules).route(pa.RecordBatch.from_arrays(arrays, names=names))
    found = routed.rows.to_pylist()
    for number, (stream, topic, key) in enumerate(rows):
        said = explain_row({"s": stream, "t": topic, "p": key}, settings)
        (verdict,) = said.verdicts
        wanted = routed.wanted[routed.index[number]]
        assert verdict.destination == (str(wanted) if wanted.stream else wanted.topic)
        refused = admission.refusal(wanted)
        partition = found[number].get(record.PARTITION)
        if refused is not None:
            assert verdict.admission == f"refused: {refused.value} -> dlq"
        elif partition is not None and not 0 <= partition < 2:
            assert verdict.admission == "refused: partition_id_out_of_range -> dlq"
        else:
            assert verdict.admission == "admitted"
        if encoding == "partition_id":
            assert verdict.partition == (f"{partition} of 2" if partition is not None else verdict.partition)
            assert verdict.partition.startswith("any") == (partition is None)


targets = st.lists(st.builds(Destination, st.just("s"), st.sampled_from("xyz")), min_size=1, max_size=2).map(tuple)


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), targets), st.booleans()), min_size=1, max_size=3),
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5),
)
def test_routes(lookups: list[tuple[dict[str, tuple[Destination, ...]], bool]], kinds: list[str | None]) -> None:
    rules = Rules(lookups=tuple(Lookup(mapping, stops, "k") for mapping, stops in lookups))
    settings = RoutingSettings(KeyPaths(lookups=(("k",),) * len(lookups)), rules, Admission(), "drop", "drop")
    columns: dict[str, Any] = {
        record.MESSAGE_ID: pa.array([f"m{n}" for n in range(len(kinds))]),
        record.PAYLOAD: pa.array([b""] * len(kinds), pa.binary()),
        **{f"_route_{n}": pa.array(kinds, pa.string()) for n in range(len(lookups))},
    }
    routed = Router(rules).route(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))
    told = [each.destination for kind in kinds for each in explain_row({"k": kind}, settings).verdicts]
    assert told == [str(routed.wanted[index]) for index in routed.index]
