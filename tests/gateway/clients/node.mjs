// kafkajs behind one command: a JSON request on standard input, its answer on standard output.
import kafkajs from "kafkajs";

const { Kafka, CompressionTypes, logLevel } = kafkajs;
const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));

const request = JSON.parse(await new Response(process.stdin).text());
const kafka = new Kafka({ brokers: request.servers.split(","), logLevel: logLevel.NOTHING });

// Two headers of one key are a list in kafkajs.
const toHeaders = (pairs) => {
  const headers = {};
  for (const [key, value] of pairs) (headers[key] ??= []).push(bytes(value));
  return headers;
};
const fromHeaders = (headers) =>
  Object.entries(headers ?? {}).flatMap(([key, value]) => [value].flat().map((each) => [key, text(each)]));

async function produce({ topic, messages, codec, idempotent }) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 });
  await producer.connect();
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec];
  await producer.send({
    topic,
    acks: -1,
    compression,
    messages: messages.map((each) => ({
      key: bytes(each.key),
      value: bytes(each.value),
      partition: each.partition,
      headers: toHeaders(each.headers),
      timestamp: each.timestamp ? String(each.timestamp) : undefined,
    })),
  });
  await producer.disconnect();
  return null;
}

async function consume({ topic, group, count, commit }) {
  const consumer = kafka.consumer({ groupId: group, maxBytesPerPartition: 20_000_000, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const found = [];
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (found.length >= count) return;
      found.push({
        partition,
        offset: Number(message.offset),
        key: text(message.key),
        value: text(message.value),
        headers: fromHeaders(message.headers),
        timestamp: Number(message.timestamp),
      });
      if (found.length === count) finish();
    },
  });
  await all;
  if (commit) {
    const ends = new Map();
    for (const each of found) ends.set(each.partition, each.offset + 1);
    const offsets = [...ends].map(([partition, offset]) => ({ topic, partition, offset: String(offset) }));
    await consumer.commitOffsets(offsets);
  }
  await consumer.disconnect();
  return found;
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  const answer = await work(admin);
  await admin.disconnect();
  return answer;
}

const commands = {
  produce,
  consume,
  offsetAt: ({ topic, partition, timestamp }) =>
    withAdmin(async (admin) => {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp);
      return Number(found.find((each) => each.partition === partition).offset);
    }),
  latest: ({ topic, partition }) =>
    withAdmin(async (admin) => {
      const found = await admin.fetchTopicOffsets(topic);
      return Number(found.find((each) => each.partition === partition).high);
    }),
  topics: () => withAdmin((admin) => admin.listTopics()),
};

const answer = await commands[request.command](request);
process.stdout.write(JSON.stringify(answer), () => process.exit(0));
