// Transactions that are committed, aborted and taken over.
"use strict"

const { print, refusal } = require("./cluster")

const transactional = (transactionalId) => ({ transactionalId, idempotent: true, maxInFlightRequests: 1 })

/** Three messages in each of ten transactions, over two partitions; every third is aborted. */
async function transactions(cluster) {
  const topic = "transactions"
  await cluster.createTopic(topic, 2)
  await cluster.producing(transactional("both-ways"), async (producer) => {
    for (let i = 0; i < 10; i++) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: [{ partition: 0, value: `${i} a` }] })
      await transaction.send({ topic, messages: [{ partition: 1, value: `${i} elsewhere` }] })
      await transaction.send({ topic, messages: [{ partition: 0, value: `${i} b` }] })
      await (i % 3 === 0 ? transaction.abort() : transaction.commit())
    }
  })
  print({ isolation: "read_committed", read: await cluster.readValues(topic, false) })
  print({ isolation: "read_uncommitted", read: await cluster.readValues(topic, true) })
}

/** Offsets of a group are committed with a transaction, or not at all. */
async function offsets(cluster) {
  const topic = "offsets"
  await cluster.createTopic(topic, 1)
  await cluster.producing(transactional("offsets"), async (producer) => {
    for (const outcome of ["aborted", "committed"]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: [{ value: "moved" }] })
      const partitions = [{ partition: 0, offset: "7" }]
      await transaction.sendOffsets({ consumerGroupId: "offsets", topics: [{ topic, partitions }] })
      await (outcome === "aborted" ? transaction.abort() : transaction.commit())
      const [found] = await cluster.administering((admin) => admin.fetchOffsets({ groupId: "offsets", topics: [topic] }))
      const offset = Number(found.partitions[0].offset)
      print({ outcome, committed: offset === -1 ? null : offset })
    }
  })
}

/** A second producer of the same name takes over; the first can no longer commit. */
async function fenced(cluster) {
  const topic = "fenced"
  await cluster.createTopic(topic, 1)
  await cluster.producing(transactional("fenced"), async (old) => {
    const lost = await old.transaction()
    await lost.send({ topic, messages: [{ value: "lost" }] })
    await cluster.producing(transactional("fenced"), async (taker) => {
      const kept = await taker.transaction()
      print({ refused: await refusal(lost.commit()) })
      await kept.send({ topic, messages: [{ value: "kept" }] })
      await kept.commit()
    })
  })
  print({ read: await cluster.readValues(topic, false) })
}

module.exports = { transactions, offsets, fenced }
