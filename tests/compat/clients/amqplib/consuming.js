// What a consumer gets, and when; questions and answers.
"use strict"

const { bodies, numbered, print, publishAll, take } = require("./broker")

async function prefetch(broker) {
  const channel = await broker.channel()
  const { queue } = await channel.assertQueue("", { exclusive: true })
  await publishAll(channel, queue, numbered(10))
  await channel.prefetch(3)
  const came = []
  let wanted = 3
  let enough
  const three = new Promise((resolve) => (enough = resolve))
  await channel.consume(queue, (message) => {
    if (came.push(message) === wanted) enough()
  })
  await three
  print({ came: bodies(came), ready: (await channel.checkQueue(queue)).messageCount })
  wanted = 5
  const five = new Promise((resolve) => (enough = resolve))
  channel.ack(came[1], true)
  await five
  print({ came: bodies(came), ready: (await channel.checkQueue(queue)).messageCount })
}

async function cut(broker) {
  const connection = await broker.connect()
  const channel = await connection.createConfirmChannel()
  await channel.assertQueue("cut", { durable: true })
  await publishAll(channel, "cut", numbered(5))
  await channel.prefetch(3)
  const lost = new Promise((resolve) => connection.on("close", resolve))
  connection.on("error", () => {}) // it is what we wait for
  const flags = ({ came }) => came.map(({ content, fields }) => [content.toString(), fields.redelivered])
  print({ came: flags(await take(channel, "cut", 3)) })
  await lost
  broker.connections = []
  print({ event: "lost" })
  const again = await broker.channel()
  print({ came: flags(await take(again, "cut", 5, (message) => again.ack(message))) })
}

async function rpc(broker, options) {
  const server = await broker.channel()
  await server.assertQueue("questions")
  await server.consume("questions", (question) => {
    const { replyTo, correlationId } = question.properties
    server.sendToQueue(replyTo, Buffer.from(String(Number(question.content) * 7)), { correlationId })
    server.ack(question)
  })
  const client = await broker.channel()
  const asked = numbered(Number(options.count))
  const answers = take(client, "amq.rabbitmq.reply-to", asked.length, null, { noAck: true })
  for (const number of asked) {
    client.sendToQueue("questions", Buffer.from(number), { replyTo: "amq.rabbitmq.reply-to", correlationId: number })
  }
  const byQuestion = new Map((await answers).came.map((answer) => [answer.properties.correlationId, answer]))
  print({ answers: asked.map((number) => byQuestion.get(number).content.toString()) })
}

async function cancelled(broker) {
  const channel = await broker.channel()
  await channel.assertQueue("doomed")
  let tell
  const told = new Promise((resolve) => (tell = resolve))
  await channel.consume("doomed", tell)
  await (await broker.channel()).deleteQueue("doomed")
  print({ event: (await told) === null ? "cancelled" : "a message" })
}

module.exports = { prefetch, cut, rpc, cancelled }
