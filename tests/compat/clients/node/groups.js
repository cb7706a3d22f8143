// Consumers in groups: how they divide partitions, and where they go on.
"use strict"

const { once } = require("node:events")
const { PartitionAssigners } = require("kafkajs")
const { print, until } = require("./cluster")

const PARTITIONS = 4

/** One consumer of a group, what it owns and what it has read. */
class Member {
  constructor(cluster, groupId) {
    this.consumer = cluster.consumer({ groupId, partitionAssigners: [PartitionAssigners.roundRobin] })
    this.share = []
    this.read = new Set()
  }

  async start(topic) {
    const { GROUP_JOIN, REBALANCING } = this.consumer.events
    this.consumer.on(GROUP_JOIN, ({ payload }) => (this.share = payload.memberAssignment[topic] ?? []))
    this.consumer.on(REBALANCING, () => (this.share = []))
    await this.consumer.connect()
    await this.consumer.subscribe({ topic, fromBeginning: true })
    await this.consumer.run({ eachMessage: async ({ message }) => this.read.add(Number(message.value)) })
    return this
  }
}

/** Two groups of two; then one member of the first leaves. */
async function groups(cluster, { topic }) {
  await cluster.createTopic(topic, PARTITIONS)
  await cluster.sendNumbers(topic, 0, 100, PARTITIONS)
  const names = [`${topic}-one`, `${topic}-one`, `${topic}-two`, `${topic}-two`]
  const members = await Promise.all(names.map((name) => new Member(cluster, name).start(topic)))
  await settle(`${topic}-one`, members.slice(0, 2), 100)
  await settle(`${topic}-two`, members.slice(2), 100)
  await members.shift().consumer.disconnect()
  await settle(`${topic}-one`, members.slice(0, 1), 0)
  members[0].read.clear()
  await cluster.sendNumbers(topic, 100, 120, PARTITIONS)
  await settle(`${topic}-one`, members.slice(0, 1), 20)
  await Promise.all(members.map((member) => member.consumer.disconnect()))
}

/** Waits until this group owns everything, nobody too much, and has read so many messages. */
async function settle(group, members, toRead) {
  const read = () => [...new Set(members.flatMap((member) => [...member.read]))].sort((a, b) => a - b)
  const isEven = () => members.every((member) => member.share.length === PARTITIONS / members.length)
  await until(`a division of ${group}`, () => isEven() && read().length >= toRead)
  print({ group, shares: members.map((member) => [...member.share].sort()), read: read() })
}

/** Reads ten, commits, waits for a line (the broker is started anew meanwhile), and reads on with the same clients. */
async function resume(cluster) {
  await cluster.sendNumbers("resume", 0, 20, 1)
  const consumer = await reader(cluster, /resu.e/)
  await consumer.readSome(10)
  print({ event: "committed" })
  await once(process.stdin, "data")
  await cluster.sendNumbers("resume", 20, 25, 1)
  await consumer.readSome(15)
  await consumer.stop()
}

/** A new member goes on where the group was. */
async function resumed(cluster) {
  await cluster.sendNumbers("resume", 25, 28, 1)
  const consumer = await reader(cluster, "resume")
  await consumer.readSome(3)
  await consumer.stop()
}

/** A member of the group `resume` that reads only as many messages as it is asked for, and commits them. */
async function reader(cluster, topic) {
  const consumer = cluster.consumer({ groupId: "resume" })
  const values = []
  let wanted = 0
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      for (const message of batch.messages) {
        if (values.length >= wanted) break
        values.push(Number(message.value))
        resolveOffset(message.offset)
        const offset = String(Number(message.offset) + 1)
        if (values.length === wanted) {
          await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset }])
          print({ read: values.splice(0) })
          wanted = 0
        }
      }
    },
  })
  return {
    readSome: async (count) => {
      wanted = count
      await until(`${count} messages`, () => wanted === 0)
    },
    stop: () => consumer.disconnect(),
  }
}

module.exports = { groups, resume, resumed }
