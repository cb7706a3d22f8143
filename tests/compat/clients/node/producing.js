// What producers can ask for: codecs, acknowledgements, idempotence, large messages.
"use strict"

const { CompressionCodecs, CompressionTypes } = require("kafkajs")
const snappy = require("kafkajs-snappy")
const lz4 = require("lz4-napi")
const zstd = require("@bokuweb/zstd-wasm")
const { numbers, print, refusal } = require("./cluster")

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const ACKS = { 0: 0, 1: 1, all: -1 }

// kafkajs brings gzip alone.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

/** Each codec with each kind of acknowledgement, into a topic of its own that nobody made before. */
async function codecs(cluster, options) {
  await zstd.init()
  for (const codec of options.codecs.split(",")) {
    for (const acks of options.acks.split(",")) {
      const topic = `codecs-${codec}-${acks}`
      const messages = numbers(0, 20).map((i) => ({
        partition: 0,
        key: `key-${i}`,
        value: `${codec} ${acks} ${i} ${"x".repeat(200)}`,
        headers: { number: String(i) },
      }))
      const answers = await cluster.producing({}, (producer) =>
        producer.send({ topic, messages, acks: ACKS[acks], compression: CODECS[codec] }),
      )
      if (acks !== "0") print({ topic, offsets: numbers(0, 20).map((i) => Number(answers[0].baseOffset) + i) })
      const read = await cluster.readAll(topic)
      print({ topic, read: read.map((m) => [Number(m.offset), `${m.key}`, `${m.value}`, `${m.headers.number}`]) })
    }
  }
}

/** Many small batches. */
async function idempotent(cluster) {
  await cluster.producing({ idempotent: true, maxInFlightRequests: 5 }, async (producer) => {
    for (let i = 0; i < 500; i += 10) {
      const messages = numbers(i, i + 10).map((number) => ({ partition: 0, value: String(number) }))
      await producer.send({ topic: "idempotent", messages })
    }
  })
  print({ read: await cluster.readValues("idempotent") })
}

/** As large as a topic takes by default, as large as another is set to take, and more than either takes. */
async function large(cluster) {
  await cluster.createTopic("large-default", 1)
  await cluster.createTopic("large-set", 1, { "max.message.bytes": "8000000" })
  await cluster.producing({}, async (producer) => {
    const send = (topic, size) => producer.send({ topic, messages: [{ partition: 0, value: body(size) }] })
    await send("large-default", 1_000_000)
    await send("large-set", 5_000_000)
    await send("large-set", 7_900_000)
    for (const topic of ["large-default", "large-set"]) {
      print({ topic, refused: await refusal(send(topic, 8_100_000)) })
    }
  })
  for (const topic of ["large-default", "large-set"]) {
    const read = await cluster.readValues(topic)
    const intact = read.every((value) => value === body(value.length))
    print({ topic, sizes: read.map((value) => value.length), intact })
  }
}

function body(size) {
  return "0123456789abcdefghi".repeat(size / 19 + 1).slice(0, size)
}

module.exports = { codecs, idempotent, large }
