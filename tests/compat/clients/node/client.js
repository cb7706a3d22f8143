// Runs one scenario with kafkajs: `client.js BOOTSTRAP SCENARIO [name=value ...]`. Prints JSON, a line each; fails with
// a sentence.
"use strict"

const { Cluster } = require("./cluster")

const scenarios = {
  ...require("./producing"),
  ...require("./transactions"),
  ...require("./groups"),
  ...require("./times"),
  ...require("./administration"),
}

async function main() {
  const [bootstrap, name, ...words] = process.argv.slice(2)
  if (!scenarios[name]) {
    console.error(`usage: client.js BOOTSTRAP SCENARIO [name=value ...], of ${Object.keys(scenarios)}`)
    process.exit(2)
  }
  const options = Object.fromEntries(words.map((word) => word.split("=", 2)))
  try {
    await scenarios[name](new Cluster(bootstrap), options)
  } catch (failure) {
    console.error(`scenario ${name} failed: ${failure.stack}`)
    process.exit(1)
  }
  process.exit(0) // whatever timers a client left behind
}

main()
