"""What a source says of itself shows in its pipeline's status."""

from __future__ import annotations

from headgate.model import ConnectError, Status
from headgate.pipeline.report import Reporter, with_source_error


def test_a_source_that_cannot_be_read_makes_its_pipeline_degraded() -> None:
    reporter = Reporter("p", "s", ())
    reporter.status(Status.RUNNING)
    error = ConnectError("PostgreSQL is away", remedy="trying again").as_dict()
    seen = with_source_error(reporter.report, error)
    assert (seen.status, seen.error) == (Status.DEGRADED, error)
    assert with_source_error(reporter.report, None).status is Status.RUNNING


def test_what_ended_the_pipeline_itself_counts_more() -> None:
    reporter = Reporter("p", "s", ())
    reporter.status(Status.ERROR, ConnectError("first", remedy=""))
    seen = with_source_error(reporter.report, ConnectError("second", remedy="").as_dict())
    assert seen.status is Status.ERROR
    assert seen.error is not None
    assert seen.error["message"] == "first"


def test_a_pipeline_that_waits_for_its_source_says_why() -> None:
    """Such as a standby: another reader holds the slot."""
    error = ConnectError("another reader holds the slot", remedy="waiting").as_dict()
    seen = with_source_error(Reporter("p", "s", ()).report, error)
    assert (seen.status, seen.error) == (Status.STARTING, error)
