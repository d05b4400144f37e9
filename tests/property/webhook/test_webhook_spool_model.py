"""The spool against a list: whatever is appended, delivered and cut off, acknowledged rows stay, in order, once."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.sources.webhook.rows import read_rows
from headgate.spool.frames import Request
from headgate.spool.segments import first_row, segment_path, segments
from headgate.spool.spool import Receipt, Spool

bodies = st.lists(st.binary(max_size=30), min_size=1, max_size=3)
groups = st.lists(st.tuples(st.integers(0, 5), bodies), min_size=1, max_size=4)


class SpoolMachine(RuleBasedStateMachine):
    """Keys are numbers; 0 stands for a request without one."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.rows: list[bytes] = []
        self.known: dict[int, Receipt] = {}
        self.delivered = 0
        self.spool = self.open()

    def open(self) -> Spool:
        return Spool(self.directory, segment_bytes=300)

    @rule(group=groups)
    def append(self, group: list[tuple[int, list[bytes]]]) -> None:
        now_us = time.time_ns() // 1000
        requests = [
            Request(now_us, bytes([key]) * 16 if key else b"", "c", "/p", None, {"h": "v"}, each) for key, each in group
        ]
        for (key, each), receipt in zip(group, self.spool.append(requests), strict=True):
            assert receipt is not None
            if key in self.known:
                seen = self.known[key]
                assert receipt == Receipt(seen.first_row, seen.rows, duplicate=True)
                continue
            assert receipt == Receipt(len(self.rows), len(each))
            self.rows += each
            if key:
                self.known[key] = receipt

    @rule(torn=st.binary(max_size=40))
    def crash(self, torn: bytes) -> None:
        """What a dying server leaves: everything acknowledged, and perhaps the beginning of something else."""
        self.spool.close()
        with segment_path(self.directory, segments(self.directory)[-1]).open("ab") as file:
            file.write(torn)
        self.spool = self.open()

    @rule(share=st.floats(0, 1))
    def deliver(self, share: float) -> None:
        self.delivered = max(self.delivered, int(len(self.rows) * share))
        self.spool.marks.deliver(self.delivered)
        self.spool.release(all_of_it=share > 0.9)

    @invariant()
    def every_row_that_is_not_delivered_can_be_read(self) -> None:
        assert self.spool.marks.read_tail() == self.spool.next_row == len(self.rows)
        kept = first_row(self.directory)
        assert kept is not None
        assert kept <= self.delivered
        batches = list(read_rows(self.directory, self.delivered, len(self.rows), "binary"))
        assert [body for batch in batches for body in batch.column("body").to_pylist()] == self.rows[self.delivered :]

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.directory)


SpoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSpool = SpoolMachine.TestCase
