// The administrator's calls, and many topics.
"use strict"

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ConfigResourceTypes, ResourcePatternTypes } = require("kafkajs")
const { numbers, print, refusal, until } = require("./cluster")

/** As many topics as `count` says, from their making to their end. */
async function many(cluster, { count }) {
  const names = numbers(0, Number(count)).map((i) => `many-${String(i).padStart(4, "0")}`)
  await cluster.administering(async (admin) => {
    const ours = async () => (await admin.listTopics()).filter((name) => name.startsWith("many-")).length
    await admin.createTopics({ topics: names.map((topic) => ({ topic })) })
    print({ did: "create", topics: await ours() })
    const topicMessages = names.map((topic) => ({ topic, messages: [{ value: topic }] }))
    await cluster.producing({}, (producer) => producer.sendBatch({ topicMessages }))
    const read = await readMany(cluster, names.length)
    print({ did: "consume", topics: read.size, all: names.every((name) => read.has(name)) })
    await admin.deleteTopics({ topics: names })
    print({ did: "delete", topics: await ours() })
  })
}

async function readMany(cluster, count) {
  const read = new Set()
  const consumer = cluster.consumer({ groupId: "many" })
  await consumer.connect()
  await consumer.subscribe({ topic: /many-.*/, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ topic }) => read.add(topic) })
  await until("a message of each topic", () => read.size >= count)
  await consumer.disconnect()
  return read
}

/** Each call prints what it was answered. */
async function admin(cluster) {
  const topic = "governed"
  await cluster.administering(async (admin) => {
    const answer = async (call, pending) => print({ call, refused: await refusal(pending) })
    const { brokers, controller } = await admin.describeCluster()
    print({ call: "describeCluster", nodes: brokers.length, controller })
    const configEntries = [{ name: "retention.ms", value: "86400000" }]
    print({ call: "createTopics", made: await admin.createTopics({ topics: [{ topic, numPartitions: 3, configEntries }] }) })
    print({ call: "createTopics again", made: await admin.createTopics({ topics: [{ topic }] }) })
    await answer("createPartitions", admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] }))
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    print({ call: "fetchTopicMetadata", partitions: topics[0].partitions.length })
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    for (const value of ["5000", "soon"]) {
      const resources = [{ ...resource, configEntries: [{ name: "retention.ms", value }] }]
      await answer("alterConfigs", admin.alterConfigs({ resources }))
    }
    const described = await admin.describeConfigs({ resources: [{ ...resource, configNames: ["retention.ms"] }] })
    print({ call: "describeConfigs", value: described.resources[0].configEntries[0].configValue })
    await cluster.sendNumbers(topic, 0, 10, 1)
    await answer("deleteTopicRecords", admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "4" }] }))
    const offsets = (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 0)
    print({ call: "fetchTopicOffsets", low: Number(offsets.low), high: Number(offsets.high) })
    await administerGroup(cluster, admin, topic)
    await answer("describeAcls", admin.describeAcls({
      resourceType: AclResourceTypes.ANY,
      resourcePatternType: ResourcePatternTypes.ANY,
      operation: AclOperationTypes.ANY,
      permissionType: AclPermissionTypes.ANY,
    }))
    await answer("deleteTopics", admin.deleteTopics({ topics: [topic] }))
  })
}

async function administerGroup(cluster, admin, topic) {
  const groupId = "governors"
  const consumer = cluster.consumer({ groupId })
  let isReading = false
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ eachMessage: async () => void (isReading = true) })
  await until("a message", () => isReading)
  const { groups } = await admin.describeGroups([groupId])
  print({ call: "describeGroups", state: groups[0].state, clients: groups[0].members.map((member) => member.clientId) })
  await consumer.disconnect()
  const [committed] = await admin.fetchOffsets({ groupId, topics: [topic] })
  const place = committed.partitions.find(({ partition }) => partition === 0)
  print({ call: "fetchOffsets", offset: Number(place.offset) })
  print({ call: "listGroups", isListed: (await admin.listGroups()).groups.some((group) => group.groupId === groupId) })
  print({ call: "deleteGroups", refused: await refusal(admin.deleteGroups([groupId])) })
}

module.exports = { many, admin }
