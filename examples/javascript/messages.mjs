// Messages of a bridge as values: decompress, put parts together, decode.

import { createHash } from "node:crypto";
import { decode as decodeMessagePack } from "@msgpack/msgpack";
import { createDCtx, decompress, decompressUsingDict, init } from "@bokuweb/zstd-wasm";

await init();

/** The first 16 hexadecimal digits of a SHA-256, which name dictionaries and make up checksums. */
export const digest = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 16);

/** Turns the messages of one stream, in their order, into payloads as the bridge made them. */
export class PayloadReader {
  #fetchDictionary;
  #dictionaries = new Map();
  #parts = new Map(); // by subject: parts of two payloads may lie between each other
  #context = createDCtx();

  /** `fetchDictionary(id)` gets the bytes of a dictionary from the bucket `dictionaries`. */
  constructor(fetchDictionary) {
    this.#fetchDictionary = fetchDictionary;
  }

  /** A whole payload, or undefined while parts of it are missing. */
  async read(message) {
    const payload = await this.#decompressed(message.data, message.headers);
    const chunk = message.headers?.get("Headgate-Chunk");
    if (!chunk) return payload;
    const [number, count] = chunk.split("/").map(Number);
    const parts = number === 1 ? [] : (this.#parts.get(message.subject) ?? []);
    if (parts.length !== number - 1) throw new Error(`part ${chunk} of ${message.subject} does not follow the last one`);
    parts.push(payload);
    this.#parts.set(message.subject, parts);
    if (number < count) return undefined;
    this.#parts.delete(message.subject);
    return Buffer.concat(parts);
  }

  // Every message is compressed by itself, a part of a payload too.
  async #decompressed(bytes, headers) {
    const encoding = headers?.get("Headgate-Encoding");
    if (!encoding) return bytes;
    if (encoding !== "zstd") throw new Error(`unknown encoding ${encoding}`);
    const id = headers.get("Headgate-Dictionary");
    return id ? decompressUsingDict(this.#context, bytes, await this.#dictionary(id)) : decompress(bytes);
  }

  async #dictionary(id) {
    if (!this.#dictionaries.has(id)) {
      const bytes = await this.#fetchDictionary(id);
      if (digest(bytes) !== id) throw new Error(`the dictionary ${id} is damaged`);
      this.#dictionaries.set(id, bytes);
    }
    return this.#dictionaries.get(id);
  }
}

/** A payload as an object. Every one of them is a map, so its first byte tells JSON from MessagePack. */
export function decode(payload) {
  if (payload[0] === "{".charCodeAt(0)) return JSON.parse(Buffer.from(payload).toString());
  return decodeMessagePack(payload, { useBigInt64: true }); // only what needs 64 bits becomes a BigInt
}
