// RocketMQ's client for Node over gRPC, one scenario a run; the same scenarios as the program in Python.
'use strict';

const readline = require('node:readline');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const PATIENCE_MS = 60_000;
const COMMIT = 1;
const ROLLBACK = 2;
const SQL = 2;
const QUIET = { info() {}, warn() {}, error() {}, debug() {}, close() {} };

const [endpoints, scenario] = process.argv.slice(2);
const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const common = { endpoints, namespace: '', requestTimeout: 10_000, logger: QUIET };

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const wait = () => input.next();
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const bodyOf = (message) => message.body.toString();
const quoted = (words) => `[${words.map((word) => `'${word}'`).join(', ')}]`;
const message = (topic, body, more = {}) => ({ topic, body: Buffer.from(body), ...more });

async function until(condition, what) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited in vain: ${what}`);
    await pause(10);
  }
}

async function producerOf(topic, more = {}) {
  const producer = new Producer({ ...common, topics: [topic], ...more });
  await producer.startup();
  return producer;
}

async function simpleOf(topic, expression = '*', group = 'g') {
  const subscriptions = new Map().set(topic, expression);
  const consumer = new SimpleConsumer({ ...common, consumerGroup: group, subscriptions, awaitDuration: 5000 });
  await consumer.startup();
  return consumer;
}

async function push(topic, group = 'g', judge = () => true) {
  const taken = [];
  const consume = async (view) => {
    taken.push(view);
    return judge(view) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
  };
  const subscriptions = new Map().set(topic, '*');
  const consumer = new PushConsumer({ ...common, consumerGroup: group, subscriptions, messageListener: { consume } });
  await consumer.startup();
  return taken;
}

async function receiveAll(consumer, count, acks = true) {
  const found = [];
  const deadline = Date.now() + PATIENCE_MS;
  while (found.length < count) {
    if (Date.now() > deadline) throw new Error(`received ${found.length} messages of ${count}`);
    for (const each of await consumer.receive(32, 15_000)) {
      found.push(each);
      if (acks) await consumer.ack(each);
    }
  }
  return found;
}

async function sendAtLast(producer, made) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await producer.send(made);
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await pause(200);
    }
  }
}

const scenarios = {
  async sync() {
    const producer = await producerOf('normal');
    const consumer = await simpleOf('normal');
    const sent = [];
    for (let i = 0; i < 20; i++) {
      const properties = new Map().set('colour', `blue ${i}`);
      sent.push((await producer.send(message('normal', `${i}`, { tag: 'tag', keys: [`key${i}`], properties }))).messageId);
    }
    const read = await receiveAll(consumer, 20);
    const ids = read.map((each) => each.messageId);
    say({
      ids: new Set(sent).size,
      same: JSON.stringify([...sent].sort()) === JSON.stringify(ids.sort()),
      read: Object.fromEntries(
        read.map((each) => [bodyOf(each), [each.tag, ...each.keys, each.properties.get('colour'), each.deliveryAttempt]]),
      ),
    });
  },

  async asynchronous() {
    const producer = await producerOf('normal');
    const consumer = await simpleOf('normal');
    const bodies = Array.from({ length: 20 }, (_, i) => `${i}`);
    const sent = await Promise.all(bodies.map((body) => producer.send(message('normal', body))));
    const read = (await receiveAll(consumer, 20)).map(bodyOf);
    say({ ids: new Set(sent.map((each) => each.messageId)).size, read: read.sort((one, other) => one - other) });
  },

  async filters() {
    const producer = await producerOf('normal');
    for (const [number, tag] of ['Aa', 'BB', 'C', 'Aa', 'D'].entries()) {
      await producer.send(message('normal', `${tag}${number}`, { tag, properties: new Map().set('n', `${number}`) }));
    }
    const sql = new FilterExpression("n > 1 AND TAGS <> 'D'", SQL);
    const found = {};
    for (const [group, expression, count] of [['tags', 'Aa || C', 3], ['twin', 'BB', 1], ['sql', sql, 2]]) {
      found[group] = (await receiveAll(await simpleOf('normal', expression, group), count)).map(bodyOf).sort();
    }
    say(found);
  },

  async large() {
    const producer = await producerOf('normal');
    const consumer = await simpleOf('normal');
    const body = 'x'.repeat(3 << 20);
    await producer.send(message('normal', body));
    let refused = false;
    try {
      await producer.send(message('normal', 'y'.repeat((4 << 20) + 1)));
    } catch {
      refused = true;
    }
    const [read] = await receiveAll(consumer, 1);
    say({ intact: bodyOf(read) === body, refused });
  },

  async push_all() {
    const producer = await producerOf('normal');
    const taken = await push('normal');
    for (let i = 0; i < 100; i++) await producer.send(message('normal', `${i}`));
    await until(() => new Set(taken.map(bodyOf)).size === 100, 'a hundred messages');
    say({ taken: taken.map((each) => Number(bodyOf(each))).sort((one, other) => one - other) });
  },

  async fifo() {
    const producer = await producerOf('fifo');
    const taken = await push('fifo', 'orderly');
    for (let step = 0; step < 6; step++) {
      for (let order = 0; order < 5; order++) {
        await producer.send(message('fifo', `${order} ${step}`, { messageGroup: `order ${order}` }));
      }
    }
    await until(() => taken.length === 30, 'all steps');
    const steps = {};
    for (const [order, step] of taken.map((each) => bodyOf(each).split(' '))) (steps[order] ??= []).push(Number(step));
    say({ steps });
  },

  async invisible() {
    const producer = await producerOf('normal');
    const consumer = await simpleOf('normal');
    for (const body of ['longer', 'back', 'forgotten']) await producer.send(message('normal', body));
    const held = Object.fromEntries((await receiveAll(consumer, 3, false)).map((each) => [bodyOf(each), each]));
    await consumer.changeInvisibleDuration(held.longer, 3_600_000);
    await consumer.changeInvisibleDuration(held.back, 20_000);
    say({ done: 'held' });
    await wait();
    const again = await receiveAll(consumer, 2);
    say({ again: again.map((each) => [bodyOf(each), each.deliveryAttempt]).sort() });
  },

  async delays() {
    const producer = await producerOf('delay');
    const consumer = await simpleOf('delay');
    const later = (minutes) => ({ deliveryTimestamp: new Date(Date.now() + minutes * 60_000) });
    await producer.send(message('delay', 'half', later(30)));
    await producer.send(message('delay', 'hour', later(60)));
    const receipt = await producer.send(message('delay', 'recalled', later(30)));
    await producer.recallMessage('delay', receipt.recallHandle);
    const taken = [];
    for (let i = 0; i < 2; i++) {
      say({ done: `taken ${quoted(taken)}` });
      await wait();
      taken.push(...(await receiveAll(consumer, 1)).map(bodyOf));
    }
    say({ done: `taken ${quoted(taken)}` });
  },

  async transactions() {
    const asked = [];
    const check = async (view) => {
      asked.push(bodyOf(view));
      return bodyOf(view).endsWith('commit') ? COMMIT : ROLLBACK;
    };
    const producer = await producerOf('transaction', { checker: { check } });
    const taken = await push('transaction');
    for (const body of ['commit', 'rollback', 'asked-commit', 'asked-not']) {
      const transaction = producer.beginTransaction();
      await producer.send(message('transaction', body), transaction);
      if (body === 'commit') await transaction.commit();
      if (body === 'rollback') await transaction.rollback();
    }
    await until(() => taken.length, 'what was committed');
    say({ done: `taken ${quoted(taken.map(bodyOf))}` });
    await wait();
    await until(() => taken.length > 1 && asked.length >= 2, 'what was asked for');
    say({ taken: taken.map(bodyOf), asked: [...new Set(asked)].sort() });
  },

  async dead_letter() {
    const producer = await producerOf('normal');
    const taken = await push('normal', 'few', () => false);
    await producer.send(message('normal', 'bad'));
    for (let number = 1; number <= 3; number++) {
      await until(() => taken.length === number, `try ${number}`);
      say({ done: `tried ${number}`, attempt: taken[number - 1].deliveryAttempt });
      await wait();
    }
    say({ tries: taken.length });
  },

  async restart() {
    const producer = await producerOf('normal');
    const taken = await push('normal');
    let number = 0;
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < 10; i++) await sendAtLast(producer, message('normal', `${number++}`));
      await until(() => new Set(taken.map(bodyOf)).size === number, `round ${round}`);
      say({ taken: [...new Set(taken.map((each) => Number(bodyOf(each))))].sort((one, other) => one - other) });
      await wait();
    }
  },
};

scenarios[scenario]().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
