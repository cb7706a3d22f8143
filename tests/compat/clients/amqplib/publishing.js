// What a publisher hears, and what becomes of bodies and headers.
"use strict"

const { bodies: texts, numbered, print, publishAll, take } = require("./broker")

async function confirms(broker, options) {
  const channel = await broker.channel()
  await channel.assertQueue("confirms", { durable: true })
  print(await publishAll(channel, "confirms", numbered(Number(options.count))))
  const { came } = await take(channel, "confirms", Number(options.count), (message) => channel.ack(message))
  print({ read: texts(came) })
  const full = await channel.assertQueue("", { exclusive: true, maxLength: 1, arguments: { "x-overflow": "reject-publish" } })
  print(await publishAll(channel, full.queue, ["first", "second"]))
}

async function returns(broker) {
  const channel = await broker.channel()
  channel.on("return", ({ fields, content }) =>
    print({
      code: fields.replyCode,
      text: fields.replyText,
      exchange: fields.exchange,
      key: fields.routingKey,
      body: content.toString(),
    }),
  )
  print(await publishAll(channel, "nowhere", ["lost"], { mandatory: true }))
}

async function bodies(broker, options) {
  const channel = await broker.channel()
  const { queue } = await channel.assertQueue("", { exclusive: true })
  const sent = options.sizes.split(",").map((size) => Buffer.alloc(Number(size), "0123456789abcdef!"))
  await publishAll(channel, queue, sent)
  const { came } = await take(channel, queue, sent.length, null, { noAck: true })
  const intact = came.every(({ content }, i) => content.equals(sent[i]))
  print({ sizes: came.map(({ content }) => content.length), intact })
}

async function headers(broker) {
  const channel = await broker.channel()
  const { queue } = await channel.assertQueue("", { exclusive: true })
  const sent = { text: "é", small: 1, large: 2 ** 40, half: 0.5, flag: true, none: null, list: [1, "a", { b: [false] }] }
  await publishAll(channel, queue, [""], { headers: sent, priority: 3, messageId: "m" })
  const { properties } = await channel.get(queue, { noAck: true })
  print({ headers: properties.headers, priority: properties.priority, id: properties.messageId })
}

async function many(broker, options) {
  const channel = await broker.channel()
  const names = numbered(Number(options.count)).map((number) => `many.${number}`)
  await Promise.all(names.map((name) => channel.assertQueue(name, { durable: true })))
  print({ did: "declare", queues: names.length })
  for (const name of names) channel.sendToQueue(name, Buffer.from(name), { persistent: true })
  await channel.waitForConfirms()
  const came = await Promise.all(names.map((name) => channel.get(name, { noAck: true })))
  print({ did: "read", queues: came.filter((message, i) => message.content.toString() === names[i]).length })
  const left = await Promise.all(names.map((name) => channel.deleteQueue(name)))
  print({ did: "delete", left: left.reduce((sum, { messageCount }) => sum + messageCount, 0) })
}

module.exports = { confirms, returns, bodies, headers, many }
