// A client of headgate's broker in TypeScript: nothing but SQL. Any number may run; one at a time handles a group.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

export interface Event {
  id: string; // a bigint, which is a string to node-postgres
  topic: string;
  payload: unknown;
  attempt: number;
}

type Handle = (event: Event) => Promise<void>;

interface Row {
  id: string | null; // null: a gap
  topic: string;
  payload: unknown;
  retry: { of: number; handler: string; attempt: number } | null;
  pos: string;
  epoch: string;
}

const BY_TOPICS = "s.params @> jsonb_build_object('topics', ARRAY[e.topic])";
const LEASE_LOST = "HG001";
const LOOK_MS = 1000; // notifications are hints: they get lost with a connection
const HOLD_MS = 5000; // the lease lasts 15 seconds

/** Publish as part of whatever transaction this connection is in. Resolves to the event's id. */
export async function publish(db: pg.ClientBase, topic: string, payload: unknown): Promise<string> {
  const found = await db.query("select headgate.publish($1, $2) as id", [topic, JSON.stringify(payload)]);
  return found.rows[0].id;
}

export class Consumer {
  private readonly owner = `ts-${randomUUID()}`;
  private subscription = 0;
  private stopped = false;
  private wake = () => {};

  constructor(
    private readonly pool: pg.Pool,
    private readonly group: string,
    private readonly name: string, // of the handler: retries come back to it alone
    private readonly handle: Handle,
    private readonly retriesS: number[] = [1, 10, 60],
  ) {}

  /** Create or find the group's subscription. What is published from now on will be handled. */
  async subscribe(...topics: string[]): Promise<void> {
    const params = JSON.stringify({ topics: [...new Set(topics)].sort() });
    const found = await this.pool.query("select headgate.subscribe($1, $2, $3) as id", [this.group, BY_TOPICS, params]);
    this.subscription = found.rows[0].id;
  }

  stop(): void {
    this.stopped = true;
    this.wake();
  }

  /** Dispatch, read and handle until stopped, then give the group to the next. */
  async run(): Promise<void> {
    const listener = await this.pool.connect();
    listener.on("notification", () => this.wake());
    await listener.query("listen headgate_events");
    try {
      while (!this.stopped) {
        const woken = new Promise<void>((resolve) => (this.wake = resolve));
        await this.pool.query("select headgate.poll_for_events()"); // any client may; one at a time does
        if (!(await this.readOnce())) await Promise.race([woken, sleep(LOOK_MS, undefined, { ref: false })]);
      }
    } finally {
      await this.pool.query("select headgate.release_group_v1($1, $2)", [this.group, this.owner]);
      await listener.query("unlisten *");
      listener.release();
    }
  }

  /** False: there is nothing to read, or another client reads. */
  private async readOnce(): Promise<boolean> {
    const { rows } = await this.pool.query<Row>(
      `select id, topic, payload, retry, pos, epoch
       from headgate.read_next_events_v1($1, null, 100, false, $2)`,
      [this.group, this.owner],
    );
    const last = rows.at(-1);
    if (!last) return false;
    const holding = setInterval(() => void this.hold(), HOLD_MS);
    try {
      for (const row of rows) await this.handleRow(row);
      await this.acknowledge(last);
    } finally {
      clearInterval(holding);
    }
    return true;
  }

  private async handleRow(row: Row): Promise<void> {
    if (row.id === null) return console.error(`positions up to ${row.pos} are gone`);
    if (row.retry && row.retry.handler !== this.name) return; // for another handler
    const attempt = row.retry?.attempt ?? 1;
    try {
      await this.handle({ id: row.id, topic: row.topic, payload: row.payload, attempt });
    } catch (error) {
      await this.settle(row.id, attempt, String(error));
    }
  }

  /** Written down before the cursor moves: again later, or put aside. */
  private async settle(id: string, attempt: number, error: string): Promise<void> {
    const delay = this.retriesS[attempt - 1];
    const common = [this.subscription, this.name, [id]];
    if (delay === undefined) {
      await this.pool.query("select headgate.bury_v1($1, $2, $3, $4, $5)", [...common, attempt, error]);
    } else {
      const retry = "select headgate.retry_v1($1, $2, $3, $4, $5, make_interval(secs => $6))";
      await this.pool.query(retry, [...common, attempt + 1, error, delay]);
    }
  }

  private async acknowledge(last: Row): Promise<void> {
    const values = [this.group, last.pos, this.owner, last.epoch];
    try {
      await this.pool.query("select headgate.set_group_cursor_v1($1, $2, false, $3, $4)", values);
    } catch (error) {
      // Another client reads by now, and will handle this again: at least once.
      if ((error as { code?: string }).code !== LEASE_LOST) throw error;
    }
  }

  /** Handling takes long: keep the lease. */
  private async hold(): Promise<void> {
    await this.pool.query("select headgate.hold_group_v1($1, $2)", [this.group, this.owner]).catch(console.error);
  }
}
