// A directory of identities (PLC) and a host (PDS), both Bluesky's own, on loopback. One JSON object a line on stdout:
// first the addresses, then, for every line on stdin, the writes that were made. It ends when stdin does.
import { mkdtempSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { AtpAgent } from '@atproto/api'
import { Secp256k1Keypair } from '@atproto/crypto'
import { PDS } from '@atproto/pds'
import plcServer from '@did-plc/server'

const [plcPort, pdsPort, directory] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]]
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')

const plc = plcServer.PlcServer.create({ db: plcServer.Database.mock(), port: plcPort })
await plc.start()
const rotation = await Secp256k1Keypair.create({ exportable: true })
const data = mkdtempSync(directory + '/pds-')
const pds = await PDS.fromEnv({
  devMode: true,
  port: pdsPort,
  hostname: 'localhost',
  dataDirectory: data,
  blobstoreDiskLocation: data + '/blobs',
  didPlcUrl: `http://localhost:${plcPort}`,
  jwtSecret: 'only-on-this-machine',
  adminPassword: 'only-on-this-machine',
  inviteRequired: false,
  plcRotationKeyK256PrivateKeyHex: Buffer.from(await rotation.export()).toString('hex'),
  recoveryDidKey: (await Secp256k1Keypair.create()).did(),
  serviceHandleDomains: ['.test'],
  disableSsrfProtection: true,
  rateLimitsEnabled: false,
  bskyAppViewUrl: 'https://appview.invalid',
  bskyAppViewDid: 'did:example:invalid',
  modServiceUrl: 'https://moderator.invalid',
  modServiceDid: 'did:example:invalid',
})
await pds.start()
say({ ready: true })

const agents = []
async function account(number) {
  const agent = new AtpAgent({ service: `http://localhost:${pdsPort}` })
  await agent.createAccount({ handle: `user${number}.test`, email: `user${number}@example.com`, password: 'password' })
  agents.push(agent)
}

// Records of several collections come, change and go; the last state of all of them is what the relay must agree with.
async function write(rounds) {
  let creates = 0
  for (let round = 0; round < rounds; round++) {
    for (const agent of agents) {
      const repo = agent.did
      const createdAt = new Date().toISOString()
      const record = { $type: 'app.bsky.feed.post', text: `post ${round}`, createdAt }
      const made = await agent.com.atproto.repo.createRecord({ repo, collection: 'app.bsky.feed.post', record })
      const like = { $type: 'app.bsky.feed.like', subject: { uri: made.data.uri, cid: made.data.cid }, createdAt }
      await agent.com.atproto.repo.createRecord({ repo, collection: 'app.bsky.feed.like', record: like })
      const profile = { $type: 'app.bsky.actor.profile', displayName: `round ${round}` }
      await agent.com.atproto.repo.putRecord({
        repo, collection: 'app.bsky.actor.profile', rkey: 'self', record: profile,
      })
      creates += 2 + !agent.hasProfile
      agent.hasProfile = true
      if (round % 3 === 2) {
        const rkey = made.data.uri.split('/').pop()
        await agent.com.atproto.repo.deleteRecord({ repo, collection: 'app.bsky.feed.post', rkey })
      }
    }
  }
  const heads = {}
  for (const agent of agents) {
    heads[agent.did] = (await agent.com.atproto.sync.getLatestCommit({ did: agent.did })).data
  }
  return { creates, heads }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { accounts, rounds } = JSON.parse(line)
  for (let number = agents.length; number < accounts; number++) await account(number)
  say(await write(rounds))
}
process.exit(0)
