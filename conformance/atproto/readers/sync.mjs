// Reads frames with @atproto/sync, Bluesky's own consumer: one per line on standard input, in hexadecimal; for each a
// line on standard output, empty if it was read, else the error.
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import path from 'node:path'
import { parseAccount, parseCommitUnauthenticated, parseSync } from '@atproto/sync'
import { readCarWithRoot } from '@atproto/repo'
import { Frame, MessageFrame } from '@atproto/xrpc-server'

const place = path.dirname(createRequire(import.meta.url).resolve('@atproto/sync'))
const { isValidRepoEvent } = await import(pathToFileURL(path.join(place, 'firehose/lexicons.js')))

async function read(message) {
  const frame = Frame.fromBytes(message)
  if (!(frame instanceof MessageFrame)) throw new Error('no message')
  const type = `com.atproto.sync.subscribeRepos${frame.header.t}`
  const event = isValidRepoEvent({ $type: type, ...frame.body })
  if (!event) throw new Error('no event')
  if (type.endsWith('#commit')) {
    await readCarWithRoot(event.blocks)
    await parseCommitUnauthenticated(event)
  } else if (type.endsWith('#sync')) await parseSync(event)
  else if (type.endsWith('#account')) parseAccount(event)
}

for await (const line of createInterface({ input: process.stdin })) {
  let said = ''
  try {
    await read(Buffer.from(line.trim(), 'hex'))
  } catch (error) {
    said = `${error}`
  }
  process.stdout.write(said.replaceAll('\n', ' ') + '\n')
}
