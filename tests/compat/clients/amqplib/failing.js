// Dead letters, and mistakes.
"use strict"

const { print, publishAll, take } = require("./broker")

async function deadLetters(broker) {
  const channel = await broker.channel()
  const to = (key) => ({ durable: true, deadLetterExchange: "", deadLetterRoutingKey: key })
  await channel.assertQueue("work", to("retry"))
  await channel.assertQueue("retry", { ...to("work"), messageTtl: 50 })
  await publishAll(channel, "work", ["hard"])
  let attempt = 0
  await take(channel, "work", 3, (message) => {
    attempt += 1
    const deaths = (message.properties.headers["x-death"] ?? []).map(({ queue, reason, count }) => [queue, reason, count])
    print({ try: attempt, deaths: deaths.sort() })
    if (attempt < 3) channel.reject(message, false)
    else channel.ack(message)
  })
}

async function mistakes(broker) {
  const connection = await broker.connect()
  const attempt = async (did, act) => {
    const channel = await connection.createChannel()
    let code = 0
    const closed = new Promise((resolve) => channel.on("error", (error) => resolve((code = error.code))))
    try {
      await act(channel, closed)
    } catch {
      await closed
    }
    print({ did, code })
  }
  await connection.createChannel().then((channel) => channel.assertQueue("mistaken", { durable: true }))
  await attempt("declare passively", (channel) => channel.checkQueue("missing"))
  await attempt("declare otherwise", (channel) => channel.assertQueue("mistaken", { durable: false }))
  await attempt("publish to no exchange", (channel, closed) => {
    channel.publish("missing", "", Buffer.from(""))
    return closed
  })
  await attempt("declare", (channel) => channel.assertQueue("mistaken", { durable: true }))
}

module.exports = { "dead-letters": deadLetters, mistakes }
