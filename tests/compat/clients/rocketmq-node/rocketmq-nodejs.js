// rocketmq-nodejs, which is RocketMQ's C++ client, behind the few verbs that the scenarios use.
"use strict"

const { Producer, PushConsumer } = require("rocketmq-nodejs")

// Its log goes to HOME; given a folder for it, the client aborts.
const settings = (names) => ({ nameServer: names, sendMessageTimeout: 10000 })
let made = 0

exports.produce = async (names, group) => {
  const producer = new Producer(group, `producer-${made++}`, settings(names))
  await producer.start()
  return {
    async send(topic, body, { tags = "", keys = "" } = {}) {
      const { statusStr, msgId, offset } = await producer.send(topic, body, { tags, keys })
      return { status: statusStr, id: msgId, offset }
    },
    close: () => producer.shutdown(),
  }
}

exports.consume = async (names, group, topic, expression, take) => {
  const consumer = new PushConsumer(group, `consumer-${made++}`, settings(names))
  consumer.subscribe(topic, expression)
  consumer.on("message", ({ body, tags, keys, msgId }, ack) => ack.done(take({ body, tags, keys, id: msgId })))
  await consumer.start()
  return { close: () => consumer.shutdown() }
}
