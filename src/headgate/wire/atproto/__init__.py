"""The AT Protocol's event stream and repositories, sans-IO.

    frame = read_frame(message)                     # kind, seq and did: enough for a reader
    event = read_event(frame)                       # Commit, Sync, Identity, Account, Info or ErrorNote
    car = read_car(event.blocks)                    # every block compared with its CID
    commit = read_commit(car.blocks[event.commit])
    key.verify(commit.signature, commit.unsigned)   # `key` of parse_document, kept
    check_ops(event.ops)
    invert(commit.data, car.blocks, event.ops)      # must be event.prev_data
    resequence(frame, seq)                          # the message for consumers

`headgate.relay.validate` puts these in order and decides. CIDs are their 36 bytes everywhere. Whatever is wrong with
input raises `AtprotoError`, whose `reason` names the broken rule; nothing else comes out, whatever the bytes.
"""

from headgate.wire.atproto.car import Car, read_car, write_car
from headgate.wire.atproto.cid import cid_of, cid_text, parse_cid
from headgate.wire.atproto.commits import RepoCommit, read_commit
from headgate.wire.atproto.did import DidDocument, document_url, host_of, is_supported, parse_document, web_host
from headgate.wire.atproto.errors import AtprotoError, Reason
from headgate.wire.atproto.events import Account, Action, Commit, ErrorNote, Event, Identity, Info, Kind, Op, Sync
from headgate.wire.atproto.frames import (
    MAX_FRAME_BYTES,
    MAX_SEQ,
    Frame,
    error_frame,
    info_frame,
    read_event,
    read_frame,
    resequence,
    without_handle,
    write_frame,
)
from headgate.wire.atproto.jetstream import account_json, commit_json, identity_json
from headgate.wire.atproto.keys import PublicKey, SigningKey, parse_did_key, parse_legacy_key, parse_multikey
from headgate.wire.atproto.mst import check_ops, invert
from headgate.wire.atproto.syntax import is_did, is_handle, is_nsid, is_tid, next_tid, tid_of, tid_us

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_SEQ",
    "Account",
    "Action",
    "AtprotoError",
    "Car",
    "Commit",
    "DidDocument",
    "ErrorNote",
    "Event",
    "Frame",
    "Identity",
    "Info",
    "Kind",
    "Op",
    "PublicKey",
    "Reason",
    "RepoCommit",
    "SigningKey",
    "Sync",
    "account_json",
    "check_ops",
    "cid_of",
    "cid_text",
    "commit_json",
    "document_url",
    "error_frame",
    "host_of",
    "identity_json",
    "info_frame",
    "invert",
    "is_did",
    "is_handle",
    "is_nsid",
    "is_supported",
    "is_tid",
    "next_tid",
    "parse_cid",
    "parse_did_key",
    "parse_document",
    "parse_legacy_key",
    "parse_multikey",
    "read_car",
    "read_commit",
    "read_event",
    "read_frame",
    "resequence",
    "tid_of",
    "tid_us",
    "web_host",
    "without_handle",
    "write_car",
    "write_frame",
]
