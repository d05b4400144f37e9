"""A range of the spool -> Arrow record batches, without Python per row.

RangeDecoder(system_id=..., relations=..., types=..., format="msgpack").decode(buffers) -> pa.RecordBatch ...
"""

from __future__ import annotations

from headgate.sources.postgres_cdc.decode.columns import record_schema
from headgate.sources.postgres_cdc.decode.decoder import Buffer, RangeDecoder, compile_ahead
from headgate.sources.postgres_cdc.decode.reference import Format

__all__ = ["Buffer", "Format", "RangeDecoder", "compile_ahead", "record_schema"]
