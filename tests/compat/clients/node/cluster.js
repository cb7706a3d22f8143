// Makes clients of one broker, and does with them what most scenarios need.
"use strict"

const { Kafka, logLevel } = require("kafkajs")

const PATIENCE_MS = 30_000
const END = "end" // written after everything else; whoever reads it has read all

class Cluster {
  constructor(bootstrap) {
    this.kafka = new Kafka({ brokers: [bootstrap], clientId: "me", logLevel: logLevel.NOTHING })
    this.groups = 0
  }

  /** A producer for as long as `work` lasts. */
  async producing(settings, work) {
    const producer = this.kafka.producer(settings)
    await producer.connect()
    try {
      return await work(producer)
    } finally {
      await producer.disconnect()
    }
  }

  async administering(work) {
    const admin = this.kafka.admin()
    await admin.connect()
    try {
      return await work(admin)
    } finally {
      await admin.disconnect()
    }
  }

  /** A consumer that neither its heartbeats nor its end keep waiting for long. */
  consumer(settings) {
    return this.kafka.consumer({ heartbeatInterval: 300, maxWaitTimeInMs: 100, ...settings })
  }

  createTopic(topic, numPartitions, settings = {}) {
    const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }))
    return this.administering((admin) => admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }))
  }

  /** The numbers as texts, one in each partition after the other. */
  sendNumbers(topic, from, to, partitions) {
    const messages = numbers(from, to).map((i) => ({ partition: i % partitions, value: String(i) }))
    return this.producing({}, (producer) => producer.send({ topic, messages }))
  }

  /** All messages of partition 0 before the last one that says END, which this writes. */
  async readAll(topic, readUncommitted = true) {
    const messages = [{ partition: 0, value: END }]
    const [{ baseOffset }] = await this.producing({}, (producer) => producer.send({ topic, messages }))
    const found = []
    let isRead = false
    const consumer = this.consumer({ groupId: `reader-${process.pid}-${this.groups++}`, readUncommitted })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        if (partition === 0 && String(message.value) !== END) found.push(message)
        isRead ||= partition === 0 && message.offset === baseOffset
      },
    })
    await until(`the end of ${topic}`, () => isRead)
    await consumer.disconnect()
    return found
  }

  async readValues(topic, readUncommitted) {
    return (await this.readAll(topic, readUncommitted)).map((message) => String(message.value))
  }
}

function numbers(from, to) {
  return Array.from({ length: to - from }, (_, i) => from + i)
}

function print(line) {
  console.log(JSON.stringify(line))
}

/** The name of the error that this ends with. */
async function refusal(pending) {
  try {
    await pending
    return "none"
  } catch (failure) {
    return failure.type ?? failure.name
  }
}

async function until(what, isSo) {
  const deadline = Date.now() + PATIENCE_MS
  while (!isSo()) {
    if (Date.now() > deadline) throw new Error(`waited ${PATIENCE_MS} ms for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

module.exports = { Cluster, numbers, print, refusal, until }
