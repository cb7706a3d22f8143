// ali-ons behind the few verbs that the scenarios use.
"use strict"

const { Consumer, Message, Producer } = require("ali-ons")

const logger = { info() {}, debug() {}, warn() {}, error() {} }

/** Its timers run faster than in a long life; the HTTP client would only ask where the name server is. */
function settings(names) {
  return {
    httpclient: {},
    nameSrv: names,
    accessKeyId: "",
    accessKeySecret: "",
    logger,
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    persistConsumerOffsetInterval: 500,
    rebalanceInterval: 500,
  }
}

/** Whatever goes wrong is tried again, and told as an event. */
function quiet(client) {
  client.on("error", () => {})
  return client
}

exports.produce = async (names, group) => {
  const producer = quiet(new Producer({ ...settings(names), producerGroup: group }))
  await producer.ready()
  return {
    async send(topic, body, { tags = "", keys = "", level = 0, shardingKey = "" } = {}) {
      const message = new Message(topic, tags, body)
      message.keys = [keys]
      if (level) message.delayTimeLevel = level
      if (shardingKey) message.shardingKey = shardingKey
      const { sendStatus, msgId, queueOffset } = await producer.send(message)
      return { status: sendStatus, id: msgId, offset: queueOffset }
    },
    close: () => producer.close(),
  }
}

/** As the client wants a moment: 20131223051900, in the time zone of the machine. */
function written(moment) {
  const two = (number) => `${number}`.padStart(2, "0")
  const day = [moment.getFullYear(), moment.getMonth() + 1, moment.getDate()]
  return [...day, moment.getHours(), moment.getMinutes(), moment.getSeconds()].map(two).join("")
}

/** `take` says whether it is content. What a retry answers the client does not look at, only whether it throws. */
exports.consume = async (names, group, topic, expression, take, options = {}) => {
  const { broadcast = false, instance = "DEFAULT", since } = options
  const consumer = quiet(
    new Consumer({
      ...settings(names),
      consumerGroup: group,
      isBroadcast: broadcast,
      instanceName: instance,
      consumeFromWhere: since ? "CONSUME_FROM_TIMESTAMP" : "CONSUME_FROM_FIRST_OFFSET",
      ...(since ? { consumeTimestamp: written(since) } : {}),
    }),
  )
  consumer.subscribe(topic, expression, async (message) => {
    const { body, tags, keys, msgId, reconsumeTimes } = message
    const isContent = take({ body: body.toString(), tags, keys, id: msgId, times: reconsumeTimes })
    if (!isContent) throw new Error("not content")
  })
  await consumer.ready()
  return { close: () => consumer.close() }
}
