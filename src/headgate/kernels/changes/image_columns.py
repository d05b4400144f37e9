"""Images of rows: the columns `_key`, `_before` and `_after` as JSON text, or whatever else is made of one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.kernels.changes import layout
from headgate.kernels.changes.columns import bytes_column
from headgate.kernels.changes.gaps import Filled, RowSource, ValueForm, WholeEvent, fill_gaps, new_state
from headgate.kernels.changes.images import NO_IMAGE, image_kernel
from headgate.kernels.changes.shapes import Shapes

__all__ = ["ImageColumns", "ImageWriter"]

_FIRST_BYTES = 1 << 20
_FIRST_GAPS = 1 << 12


class ImageWriter:
    """Images in one format. Keeps its scratch memory from batch to batch."""

    def __init__(self, kind: int, form: ValueForm, shapes: Shapes) -> None:
        self._kind = kind
        self._form = form
        self._shapes = shapes
        self._kernel = image_kernel(kind)
        self._text = np.empty(_FIRST_BYTES, dtype=np.uint8)
        self._gaps = np.empty((_FIRST_GAPS, layout.GAP_FIELDS), dtype=np.int64)

    def write(self, source: RowSource, which: int, whole: WholeEvent) -> tuple[Filled, npt.NDArray[np.bool_]]:
        """The images of one kind, and which rows have one. `whole` writes what is too large for a kernel."""
        ends = np.empty(len(source.rows), dtype=np.int64)
        state = self._run(source, which, ends)
        images = Filled(self._text[: state[layout.SIZE]].tobytes(), np.maximum.accumulate(np.maximum(ends, 0)))
        filled = fill_gaps(images, self._gaps[: state[layout.GAPS]], source, self._form, whole)
        return filled, ends != NO_IMAGE

    def _run(self, source: RowSource, which: int, ends: layout.Numbers) -> layout.State:
        state = new_state()
        tables = self._shapes.tables(self._kind)
        while self._kernel(source.src, state, tables, source.rows, which, self._text, ends, self._gaps) == layout.FULL:
            size, gaps = len(self._text) + int(state[layout.NEED_BYTES]), len(self._gaps) + int(state[layout.NEED_GAPS])
            self._text = np.resize(self._text, 2 * size)
            self._gaps = np.resize(self._gaps, (2 * gaps, layout.GAP_FIELDS))
        return state


class ImageColumns:
    """The three columns as JSON text."""

    def __init__(self, form: ValueForm, shapes: Shapes) -> None:
        self._writer = ImageWriter(layout.JSON, form, shapes)

    def columns(self, source: RowSource) -> list[pa.Array]:
        """Key, old row and new row of every row."""
        return [self._column(source, which) for which in (layout.KEY, layout.BEFORE, layout.AFTER)]

    def _column(self, source: RowSource, which: int) -> pa.Array:
        def whole(row: int) -> bytes:
            image = source.reference.image(source.event(row), which)
            assert image is not None  # else the kernel had left no gap
            return image

        images, is_there = self._writer.write(source, which, whole)
        return bytes_column(pa.string(), images.text, images.ends, is_there)
