// A table in memory, and the rule that joins a snapshot with the stream.

/** JSON of any row: a BigInt in digits, as a string where a number would lose some; bytes in base64. */
export function toJson(value, space) {
  return JSON.stringify(value, (_, v) => {
    if (typeof v === "bigint") return Number.isSafeInteger(Number(v)) ? Number(v) : v.toString();
    return v instanceof Uint8Array ? Buffer.from(v).toString("base64") : v;
  }, space);
}

/** Rows by key, kept up to date by the events of the CDC stream. */
export class Table {
  #columns; // that make up the key
  rows = new Map();

  constructor(description) {
    this.reshape(description);
  }

  /** Take the shape of a description from the bucket `schemas` or from a SCHEMA event. */
  reshape(description) {
    // Deletes carry the replica identity, which is the primary key unless an index was chosen instead.
    const byIndex = description.replica_identity === "index";
    this.#columns = byIndex ? description.key : description.primary_key;
    if (!this.#columns.length) throw new Error(`${description.schema}.${description.table} has no primary key`);
    const rows = [...this.rows.values()];
    this.rows = new Map();
    for (const row of rows) this.insert(row);
  }

  insert(row) {
    this.rows.set(this.#key(row), row);
  }

  apply({ operation, data, old }) {
    switch (operation) {
      case "INSERT": return this.insert(data);
      case "UPDATE": return this.#update(data, old);
      case "DELETE": return void this.rows.delete(this.#key(data));
      case "TRUNCATE": return this.rows.clear();
      case "SCHEMA": return this.reshape(data);
      default: throw new Error(`unknown operation ${operation}`);
    }
  }

  #update(data, old) {
    const key = this.#key(old ?? data); // `old` is there if the key changed
    const before = this.rows.get(key);
    this.rows.delete(key);
    this.insert({ ...before, ...data }); // a column that is absent did not change
  }

  #key(row) {
    return toJson(this.#columns.map((name) => row[name]));
  }
}

/** A function that tells whether a snapshot's rows contain an event already, by what `init.meta` said of it. */
export function containedIn(meta) {
  switch (meta.method) {
    case "export": {
      const point = parseLsn(meta.lsn);
      return (event) => parseLsn(event.commit_lsn) < point;
    }
    case "filter": {
      const [xmin, xmax] = [BigInt(meta.xmin), BigInt(meta.xmax)];
      const running = new Set(meta.xip.map(BigInt));
      return (event) => {
        const xid = xmax + BigInt.asIntN(32, BigInt(event.xid) - xmax); // 64 bits, the ones nearest to xmax
        return xid < xmin || (xid < xmax && !running.has(xid));
      };
    }
    case "watermark":
      return () => false;
    default:
      throw new Error(`unknown method ${meta.method}`);
  }
}

function parseLsn(text) {
  const [high, low] = text.split("/").map((digits) => BigInt(`0x${digits}`));
  return (high << 32n) | low;
}
