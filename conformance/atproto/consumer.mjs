// Bluesky's own consumer, which checks signatures and proofs itself: reads a relay from its beginning until so many
// creations have come, and says what it saw.
import { IdResolver, MemoryCache } from '@atproto/identity'
import { Firehose, MemoryRunner } from '@atproto/sync'

const [service, plcUrl, creates] = [process.argv[2], process.argv[3], Number(process.argv[4])]
const seen = { create: 0, update: 0, delete: 0, identity: 0, account: 0, sync: 0, errors: [] }
const idResolver = new IdResolver({ plcUrl, didCache: new MemoryCache(), fetch: globalThis.fetch })

function end() {
  process.stdout.write(JSON.stringify(seen) + '\n')
  process.exit(0)
}

const firehose = new Firehose({
  service,
  idResolver,
  runner: new MemoryRunner({ startCursor: 0 }),
  handleEvent: async (event) => {
    seen[event.event] = (seen[event.event] ?? 0) + 1
    if (seen.create >= creates) setTimeout(end, 500)
  },
  onError: (error) => seen.errors.push(`${error} ${error.cause ?? ''}`),
})
setTimeout(end, 60_000)
firehose.start()
