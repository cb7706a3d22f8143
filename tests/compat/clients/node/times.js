// Positions by time.
"use strict"

const { numbers, print, until } = require("./cluster")

/** Ten messages a second apart from `start` on; asks for each time of `asked` and reads from there. */
async function times(cluster, options) {
  const topic = "times"
  await cluster.createTopic(topic, 1)
  const start = Number(options.start)
  const messages = numbers(0, 10).map((i) => ({ value: String(i), timestamp: String(start + i * 1000) }))
  await cluster.producing({}, (producer) => producer.send({ topic, messages }))
  await cluster.administering(async (admin) => {
    const [{ high }] = await admin.fetchTopicOffsets(topic)
    for (const asked of options.asked.split(",").map(Number)) {
      const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, asked)
      if (offset === high) {
        print({ asked, offset: null }) // kafkajs says the end where there is none
        continue
      }
      const first = await firstMessage(cluster, topic, offset)
      print({ asked, offset: Number(offset), value: String(first.value), timestamp: Number(first.timestamp) })
    }
  })
}

/** The first message that comes. Without the seek there would be none: this consumer begins at the end. */
async function firstMessage(cluster, topic, offset) {
  let first
  const consumer = cluster.consumer({ groupId: `times-${offset}` })
  await consumer.connect()
  await consumer.subscribe({ topic })
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => void (first ??= message) })
  consumer.seek({ topic, partition: 0, offset })
  await until("a message", () => first)
  await consumer.disconnect()
  return first
}

module.exports = { times }
