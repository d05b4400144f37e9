// Publishes in a transaction, and handles: one event is handled at the second attempt, one transaction never happened.
//
//   npx tsx demo.ts postgres://...

import pg from "pg";
import { Consumer, publish, type Event } from "./client.js";

const pool = new pg.Pool({ connectionString: process.argv[2] ?? process.env.DATABASE_URL });
const COUNT = 3;
const handled: Event[] = [];

const consumer = new Consumer(
  pool,
  "ts-example",
  "greet",
  async (event) => {
    const { name } = event.payload as { name: string };
    if (name === "bob" && event.attempt === 1) throw new Error("bob is always late");
    handled.push(event);
    console.log(JSON.stringify({ hello: name, attempt: event.attempt }));
    if (handled.length === COUNT) consumer.stop();
  },
  [0.1],
);
await consumer.subscribe("user.created");

async function register(name: string, outcome: "commit" | "rollback"): Promise<void> {
  const db = await pool.connect();
  await db.query("begin");
  await db.query("create table if not exists users (name text)");
  await db.query("insert into users values ($1)", [name]);
  await publish(db, "user.created", { name }); // there if and only if the row is
  await db.query(outcome);
  db.release();
}

for (const name of ["ann", "bob", "cid"]) await register(name, "commit");
await register("eve", "rollback");
await consumer.run();
await pool.end();
