// Reads frames with @atcute's packages: one per line on standard input, in hexadecimal; for each a line on standard
// output, empty if it was read, else the error.
import { createInterface } from 'node:readline'
import { ComAtprotoSyncSubscribeRepos } from '@atcute/atproto'
import { fromUint8Array } from '@atcute/car'
import { decode, fromCidLink } from '@atcute/cbor'
import { toString } from '@atcute/cid'
import { addTypeToBody, decodeFrame } from './node_modules/@atcute/firehose/dist/frame-decoder.js'
import { parse } from '@atcute/lexicons/validations'

const { mainSchema } = ComAtprotoSyncSubscribeRepos

function read(message) {
  const frame = decodeFrame(message)
  if (frame.type === 'error') throw new Error(frame.error)
  const event = parse(mainSchema.message, addTypeToBody(frame.body, frame.discriminator, mainSchema.nsid))
  if (!event.blocks) return
  const car = fromUint8Array(event.blocks.buf)
  const blocks = new Map([...car].map((entry) => [toString(entry.cid), entry.bytes]))
  for (const op of event.ops ?? []) {
    if (op.cid) decode(blocks.get(toString(fromCidLink(op.cid))))
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let said = ''
  try {
    read(new Uint8Array(Buffer.from(line.trim(), 'hex')))
  } catch (error) {
    said = `${error}`
  }
  process.stdout.write(said.replaceAll('\n', ' ') + '\n')
}
