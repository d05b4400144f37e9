"""docs/routing.md says what is true: its example is a configuration, and names exist."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.config.loading import parse
from headgate.config.routing import AdmissionSection, BreakerSection, RoutingSection, TopicDefaultsSection
from headgate.control.metrics import render
from headgate.model import Status
from headgate.pipeline.assemble import assemble
from headgate.pipeline.report import Report
from headgate.pipeline.routing.admission import Admission, Reason
from headgate.pipeline.routing.table import DestinationTable
from tests.unit.routing.routing_fakes import explained

DOCS = Path(__file__).parents[3] / "docs"
ROUTING = (DOCS / "routing.md").read_text()
CONFIGURATION = (DOCS / "configuration.md").read_text()


def test_the_worked_example() -> None:
    example = re.findall(r"```toml\n(.*?)```", ROUTING, re.DOTALL)[0]
    (spec,) = assemble(parse(example, environ={}), nats_url="nats://127.0.0.1:1", postgres_url="postgres:///x")
    assert spec.routing is not None
    assert spec.shortcut is not None, "its rows never enter the JVM"
    field = "/".join(spec.routing.paths.lookups[0])
    paid, lost = explained([{field: "order.paid"}, {field: "order.lost"}], spec.routing)
    assert [verdict.destination for verdict in paid.verdicts] == ["billing/orders", "orders/paid"]
    assert (lost.rule, lost.note) == ("no route matches", "no destination: dlq")
    for said in (f"  rule         {paid.rule}\n", f"  rule         {lost.rule}\n", f"  goes nowhere {lost.note}\n"):
        assert said in ROUTING


def test_every_reason_and_state_is_described() -> None:
    for name in (*(reason.value for reason in Reason), *(status.value for status in Status)):
        assert f"`{name}`" in ROUTING


def test_every_key_is_listed() -> None:
    for section in (RoutingSection, AdmissionSection, BreakerSection, TopicDefaultsSection):
        for key in section.model_fields:
            assert f"`{key}`" in CONFIGURATION or f".{key}]" in CONFIGURATION, key


def test_documented_metrics_exist() -> None:
    routing = {
        "routed_total": 1, "destinations_active": 1, "circuits_open": 0, "absent_total": 0, "dead_letters_total": 0,
        "epoch": 1, "refused_total": {"cap": 1}, "unmatched_total": {"drop": 1},
        "create_seconds": DestinationTable((), Admission()).create_seconds(),
    }  # fmt: skip
    page = render([Report("p", "s", ("d",), routing=routing)]).decode()
    for name in re.findall(r"`?(headgate_[a-z_]+)", ROUTING):
        assert re.search(rf"^{name}(_bucket)?{{", page, re.MULTILINE), name
