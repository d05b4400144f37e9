// Keeps a live copy of one table: schema, snapshot, then every change. See README.md.

import { parseArgs } from "node:util";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { decode, digest, PayloadReader } from "./messages.mjs";
import { containedIn, Table, toJson } from "./table.mjs";

const { values: options } = parseArgs({
  options: {
    server: { type: "string", default: "nats://127.0.0.1:4222" },
    table: { type: "string" }, // users, or shop.users for a schema other than public
    "until-sequence": { type: "string" }, // of the CDC stream; without it: until Ctrl-C
    json: { type: "boolean", default: false },
  },
});

/** A name whose forbidden characters are written as a sign and two hexadecimal digits for each byte. */
const escaped = (name, forbidden, sign) =>
  name.replace(forbidden, (character) =>
    Array.from(Buffer.from(character), (byte) => sign + byte.toString(16).toUpperCase().padStart(2, "0")).join(""));

/** A name as a token of a subject, and of a key. */
const token = (name) => escaped(name, /[\x00-\x20\x7f.*>%\s]/gu, "%");
const keyToken = (name) => escaped(name, /[^-_A-Za-z0-9]/gu, "=");

class Consumer {
  static async open(server) {
    const connection = await connect({ servers: server });
    return new Consumer(connection, await jetstreamManager(connection));
  }

  constructor(connection, manager) {
    this.connection = connection;
    this.manager = manager;
  }

  /** A value of a key-value bucket, which is a stream like any other. */
  async value(bucket, key) {
    const message = await this.manager.streams.getMessage(`KV_${bucket}`, { last_by_subj: `$KV.${bucket}.${key}` });
    if (!message) throw new Error(`the bucket ${bucket} has no ${key}`);
    return message.data;
  }

  /** The payloads of a stream in its order, for ever, each with its sequence. */
  async *payloads(stream, settings) {
    const reader = new PayloadReader((id) => this.value("dictionaries", id));
    const consumer = await jetstream(this.connection).consumers.get(stream, settings);
    for await (const message of await consumer.consume()) {
      yield { sequence: message.seq, payload: await reader.read(message) };
    }
  }

  async requestSnapshot(name) {
    const answer = (await this.connection.request(`snapshot.request.${name}`, "", { timeout: 10_000 })).json();
    if (!answer.accepted) throw new Error(`no snapshot: ${answer.error.message}`);
    return answer;
  }

  /** All rows of a snapshot, and the message that ended it. */
  async snapshot({ stream, subject, snapshot_id: id, meta_subject: metaSubject }) {
    const chunks = new Map(); // by number: a chunk that was sent twice counts once
    for await (const { payload } of this.payloads(stream, { filter_subjects: [`${subject}.>`, metaSubject] })) {
      if (!payload) continue;
      const body = decode(payload);
      if (body.operation === "snapshot") {
        chunks.set(body.chunk, { rows: body.data, digest: digest(payload) });
      } else if (body.snapshot_id === id) {
        return { meta: body, rows: complete(body, [...chunks.values()]) };
      } else if (body.replaces?.includes(id)) {
        const replaced = subject.slice(0, -id.length) + body.snapshot_id;
        return this.snapshot({ stream, subject: replaced, snapshot_id: body.snapshot_id, meta_subject: metaSubject });
      }
    }
    throw new Error("the connection was closed");
  }

  /** Apply the changes that the snapshot lacks, up to a sequence. */
  async follow(table, description, meta, until, onChange) {
    const isContained = containedIn(meta);
    const last = Number(meta.cdc_sequence);
    if (last >= until) return;
    const start = { deliver_policy: "by_start_sequence", opt_start_seq: last + 1 };
    // A filter on the table's subject would spare traffic; but then nobody would see that `until` has passed.
    for await (const { sequence, payload } of this.payloads(meta.cdc_stream, start)) {
      if (sequence > until) return;
      const event = payload && decode(payload);
      const isOurs = event?.schema === description.schema && event.table === description.table;
      if (isOurs && !isContained(event)) {
        table.apply(event);
        onChange(event);
      }
      if (sequence >= until) return;
    }
  }
}

/** The rows of all chunks, if they are exactly those that the end of the snapshot counts. */
function complete(meta, chunks) {
  if (meta.operation !== "snapshot_end") throw new Error(`the snapshot failed: ${toJson(meta.error)}`);
  const rows = chunks.flatMap((chunk) => chunk.rows);
  const sum = chunks.reduce((total, chunk) => BigInt.asUintN(64, total + BigInt(`0x${chunk.digest}`)), 0n);
  const found = { batch_count: chunks.length, row_count: rows.length, checksum: sum.toString(16).padStart(16, "0") };
  for (const [name, value] of Object.entries(found)) {
    if (Number.isInteger(value) ? BigInt(meta[name]) !== BigInt(value) : meta[name] !== value) {
      throw new Error(`the snapshot is not whole: ${name} is ${value}, not ${meta[name]}`);
    }
  }
  return rows;
}

function print(table, meta) {
  const rows = [...table.rows.values()];
  if (options.json) console.log(toJson({ snapshot_id: meta.snapshot_id, rows }));
  else console.log(`${rows.length} rows\n${rows.slice(0, 20).map((row) => toJson(row)).join("\n")}`);
}

async function main() {
  if (!options.table) throw new Error("which table? --table users");
  const [name, schema = "public"] = options.table.split(".").reverse();
  const consumer = await Consumer.open(options.server);
  const description = decode(await consumer.value("schemas", `${keyToken(schema)}.${keyToken(name)}`));
  const subject = schema === "public" ? token(name) : `${token(schema)}.${token(name)}`;
  const { meta, rows } = await consumer.snapshot(await consumer.requestSnapshot(subject));
  const table = new Table(description);
  for (const row of rows) table.insert(row);
  const until = options["until-sequence"] ? Number(options["until-sequence"]) : Infinity;
  if (until === Infinity) {
    print(table, meta);
    process.once("SIGINT", () => consumer.connection.close());
  }
  const report = until === Infinity ? (event) => console.log(event.operation, toJson(event.data)) : () => {};
  await consumer.follow(table, description, meta, until, report);
  print(table, meta);
  await consumer.connection.close();
}

main().catch((error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
});
