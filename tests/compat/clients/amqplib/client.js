// Runs one scenario with amqplib: `client.js ADDRESS SCENARIO [name=value ...]`. Prints JSON, a line each; fails with
// a sentence.
"use strict"

const { Broker } = require("./broker")

const scenarios = {
  ...require("./publishing"),
  ...require("./consuming"),
  ...require("./failing"),
}

async function main() {
  const [address, name, ...words] = process.argv.slice(2)
  if (!scenarios[name]) {
    console.error(`usage: client.js ADDRESS SCENARIO [name=value ...], of ${Object.keys(scenarios)}`)
    process.exit(2)
  }
  const options = Object.fromEntries(words.map((word) => word.split("=", 2)))
  const broker = new Broker(address)
  try {
    await scenarios[name](broker, options)
    await broker.disconnect()
  } catch (failure) {
    console.error(`scenario ${name} failed: ${failure.stack}`)
    process.exit(1)
  }
}

main()
