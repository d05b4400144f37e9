"""The Kafka protocol, sans-IO: frames, requests and responses, record batches.

    for frame in splitter.frames():
        request = decode_request(frame)
        match request.body:
            case ProduceRequest() as produce: ...
        transport.writelines(encode_response(request.header, ProduceResponse(...)))

Requests and responses are in `messages`, one module per family. Malformed bytes raise `ProtocolError`, never anything
else, and cost no more memory than their own size allows.
"""

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.apis import APIS, find_api
from headgate.wire.kafka.batch import (
    BatchHeader,
    check_crc,
    place_batch,
    placed,
    read_batch_header,
    split_batches,
    stamped,
)
from headgate.wire.kafka.compression import Codec
from headgate.wire.kafka.encode import Buffers
from headgate.wire.kafka.exchange import (
    Request,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from headgate.wire.kafka.frames import LENGTH_BYTES, MAX_FRAME_BYTES, FrameSplitter, framed
from headgate.wire.kafka.records import Record, encode_batch, read_records
from headgate.wire.kafka.schema import NO_UUID, Body

__all__ = [
    "APIS",
    "LENGTH_BYTES",
    "MAX_FRAME_BYTES",
    "NO_UUID",
    "Api",
    "BatchHeader",
    "Body",
    "Buffers",
    "Codec",
    "FrameSplitter",
    "Record",
    "Request",
    "RequestHeader",
    "check_crc",
    "decode_request",
    "decode_response",
    "encode_batch",
    "encode_request",
    "encode_response",
    "find_api",
    "framed",
    "place_batch",
    "placed",
    "read_batch_header",
    "read_records",
    "read_request_header",
    "split_batches",
    "stamped",
]
