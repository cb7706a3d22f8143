// What the scenarios share: connections, queues, and lines of JSON.
"use strict"

const amqp = require("amqplib")

const print = (line) => console.log(JSON.stringify(line))

class Broker {
  constructor(address) {
    this.address = address
    this.connections = []
  }

  async connect() {
    const connection = await amqp.connect(`amqp://guest:guest@${this.address}`)
    this.connections.push(connection)
    return connection
  }

  /** A channel of a connection of its own, which confirms what is published. */
  async channel() {
    return (await this.connect()).createConfirmChannel()
  }

  async disconnect() {
    for (const connection of this.connections) await connection.close()
  }
}

/** Publishes without waiting in between, and counts the answers. */
async function publishAll(channel, queue, bodies, properties = {}) {
  let confirmed = 0
  let refused = 0
  await Promise.all(
    bodies.map(
      (body) =>
        new Promise((resolve) => {
          channel.sendToQueue(queue, Buffer.from(body), { persistent: true, ...properties }, (refusal) => {
            if (refusal) refused += 1
            else confirmed += 1
            resolve()
          })
        }),
    ),
  )
  return { confirmed, refused }
}

/** Consumes until `count` messages have come; `each` may acknowledge them. */
async function take(channel, queue, count, each, options = {}) {
  const came = []
  let tag
  await new Promise((resolve, reject) => {
    channel
      .consume(
        queue,
        (message) => {
          each?.(message)
          if (came.push(message) === count) resolve()
        },
        options,
      )
      .then((consumer) => (tag = consumer.consumerTag), reject)
  })
  return { came, tag }
}

const bodies = (messages) => messages.map((message) => message.content.toString())
const numbered = (count) => Array.from({ length: count }, (_, i) => String(i))

module.exports = { Broker, bodies, numbered, print, publishAll, take }
