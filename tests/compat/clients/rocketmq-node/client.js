// Runs one scenario with one of two clients: `client.js NAMES SCENARIO library=NAME`. Prints JSON, a line each; fails
// with a sentence. Topics are there already.
"use strict"

const { randomBytes } = require("node:crypto")
const readline = require("node:readline")

const PATIENCE_MS = 60000
const HOUR_MS = 3600000
const LATE = 40
const RETRIES = 16
const ORDERS = ["a", "b", "e"]

const print = (line) => console.log(JSON.stringify(line))

async function until(what, isSo) {
  const deadline = Date.now() + PATIENCE_MS
  while (!isSo()) {
    if (Date.now() > deadline) throw new Error(`waited for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** Says that something is done, and waits for a line of the test. */
let input
function pause(done) {
  input = input || readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  print({ done })
  return input.next()
}

const numbers = (taken) => [...new Set(taken.map(({ body }) => Number(body)))].sort((a, b) => a - b)

/** As soon as there is somebody who takes it. */
async function sendAtLast(producer, topic, number) {
  const isSent = () => producer.send(topic, `${number}`).then(() => true, () => false)
  const deadline = Date.now() + PATIENCE_MS
  while (!(await isSent())) if (Date.now() > deadline) throw new Error(`${number} was not sent`)
}

const scenarios = {
  /** One group wants everything, another one tag. */
  async push({ produce, consume }, names) {
    const producer = await produce(names, "push")
    const statuses = new Set()
    for (let i = 0; i < LATE; i++) {
      const { status } = await producer.send("push", `${i}`, { tags: i % 2 ? "odd" : "even", keys: `k${i}` })
      statuses.add(status)
    }
    const all = []
    const even = []
    const consumers = [
      await consume(names, "push-all", "push", "*", (message) => all.push(message)),
      await consume(names, "push-even", "push", "even", (message) => even.push(message)),
    ]
    await until("the first messages", () => all.length >= LATE && even.length >= LATE / 2)
    for (let i = LATE; i < LATE + 10; i++) await producer.send("push", `${i}`, { tags: "even", keys: `k${i}` })
    await until("the later messages", () => all.length >= LATE + 10 && even.length >= LATE / 2 + 10)
    const { tags, keys } = all.find(({ body }) => body === "7")
    print({ statuses: [...statuses], all: numbers(all), even: numbers(even), seventh: [tags, keys] })
    for (const client of [...consumers, producer]) await client.close()
  },

  /** A message fails twice; the test moves the time. */
  async retry({ produce, consume }, names) {
    const producer = await produce(names, "retry")
    const tries = []
    // Before the consumer: a new group begins where a queue ends that was empty a moment ago.
    await producer.send("retry", "again")
    const consumer = await consume(names, "retry", "retry", "*", (message) => tries.push(message) > 2)
    for (const count of [1, 2, 3]) {
      await until(`try ${count}`, () => tries.length >= count)
      await pause(`tried ${tries.length}`)
    }
    print({ bodies: tries.map(({ body }) => body), times: tries.map(({ times }) => times) })
    for (const client of [consumer, producer]) await client.close()
  },

  /** A message fails until it is given up; the test moves the time. */
  async dead({ produce, consume }, names) {
    const producer = await produce(names, "dead")
    const tries = []
    await producer.send("dead", "bad")
    const consumer = await consume(names, "dead", "dead", "*", (message) => tries.push(message) < 0)
    for (let count = 1; count <= RETRIES; count++) {
      await until(`try ${count}`, () => tries.length >= count)
      await pause(`tried ${tries.length}`)
    }
    await until("the last try", () => tries.length > RETRIES)
    print({ bodies: tries.map(({ body }) => body), times: tries.map(({ times }) => times) })
    for (const client of [consumer, producer]) await client.close()
  },

  /** The name server alone is gone after the first pause and back after the second. */
  async names({ produce, consume }, names) {
    const producer = await produce(names, "names")
    const taken = []
    await producer.send("names", "0")
    const consumer = await consume(names, "names", "names", "*", (message) => taken.push(message))
    await until("the first message", () => taken.length)
    await pause(`taken ${numbers(taken)}`)
    for (let i = 1; i <= 10; i++) await sendAtLast(producer, "names", i)
    await until("what came without it", () => numbers(taken).length >= 11)
    await pause(`taken ${numbers(taken)}`)
    await sendAtLast(producer, "names-later", 11)
    await sendAtLast(producer, "names", 12)
    await until("what came afterwards", () => numbers(taken).length >= 12)
    print({ taken: numbers(taken) })
    for (const client of [consumer, producer]) await client.close()
  },

  /** A new group that begins at a time between two messages. All of the topic would be its own if the first messages
   * were still there: the test moves the time by a hundred hours, then by two. */
  async time({ produce, consume }, names) {
    const producer = await produce(names, "time")
    for (let i = 0; i < 16; i++) await producer.send("time", randomBytes(10000).toString("hex"))
    await pause("filled")
    for (let i = 0; i < 8; i++) await producer.send("time", `${i}`)
    await pause("sent")
    for (let i = 8; i < 16; i++) await producer.send("time", `${i}`)
    const taken = []
    const options = { since: new Date(Date.now() + 101 * HOUR_MS) }
    const consumer = await consume(names, "time", "time", "*", (message) => taken.push(message), options)
    await until("those that are young", () => taken.length >= 8)
    print({ taken: numbers(taken) })
    for (const client of [consumer, producer]) await client.close()
  },

  async restart({ produce, consume }, names) {
    const producer = await produce(names, "restart")
    const taken = []
    await producer.send("restart", "0")
    const consumer = await consume(names, "restart", "restart", "*", (message) => taken.push(message))
    await until("the first message", () => taken.length)
    await pause(`taken ${numbers(taken)}`)
    for (let i = 1; i <= 10; i++) await sendAtLast(producer, "restart", i)
    await until("all messages", () => numbers(taken).length >= 11)
    print({ taken: numbers(taken) })
    for (const client of [consumer, producer]) await client.close()
  },

  /** Each order has one queue by its key, unless that would be queue 0, which the client takes for none. */
  async ordered({ produce, consume }, names) {
    const producer = await produce(names, "ordered")
    for (let step = 0; step < 6; step++) {
      for (const order of ORDERS) await producer.send("ordered", `${order}${step}`, { shardingKey: order })
    }
    const taken = []
    const consumer = await consume(names, "ordered", "ordered", "*", ({ body }) => taken.push(body))
    await until("all steps", () => taken.length >= 18)
    print({ steps: ORDERS.map((order) => taken.filter((body) => body.startsWith(order)).join("")) })
    for (const client of [consumer, producer]) await client.close()
  },

  async level({ produce, consume }, names) {
    const producer = await produce(names, "level")
    const taken = []
    const consumer = await consume(names, "level", "level", "*", ({ body }) => taken.push(body))
    await producer.send("level", "later", { level: 18 })
    await producer.send("level", "now")
    await until("what comes at once", () => taken.length >= 1)
    await pause(`taken ${taken}`)
    await until("what comes later", () => taken.length >= 2)
    print({ taken })
    for (const client of [consumer, producer]) await client.close()
  },

  async broadcast({ produce, consume }, names) {
    const producer = await produce(names, "broadcast")
    for (let i = 0; i < 20; i++) await producer.send("broadcast", `${i}`)
    const taken = [[], []]
    const consumers = []
    for (const own of taken) {
      const options = { broadcast: true, instance: `member-${consumers.length}` }
      consumers.push(await consume(names, "broadcast", "broadcast", "*", (message) => own.push(message), options))
    }
    await until("all for both", () => taken.every((own) => own.length >= 20))
    print({ taken: taken.map(numbers) })
    for (const client of [...consumers, producer]) await client.close()
  },
}

async function main() {
  const [names, scenario, library] = process.argv.slice(2)
  try {
    await scenarios[scenario](require(`./${library.split("=")[1]}`), names)
    process.exit(0) // whatever a client left behind
  } catch (failure) {
    console.error(`scenario ${scenario} failed: ${failure.stack}`)
    process.exit(1)
  }
}

main()
