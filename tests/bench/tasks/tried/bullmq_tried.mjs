// What BullMQ can, each on a Redis of its own: node bullmq_tried.mjs NAME PORT FOLDER.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [name, port, folder] = process.argv.slice(2);
const bullmq = createRequire(`${folder}/`)("bullmq");
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const queue = new bullmq.Queue("TRIED", { connection });
const open = [queue];

function worker(does, more = {}) {
  const made = new bullmq.Worker("TRIED", does, { connection, ...more });
  open.push(made);
  return made;
}

/** Resolves with what the worker did, when it has done so many. */
function done(count, does = async () => {}, more = {}) {
  return new Promise((resolve) => {
    const found = [];
    worker(async (job) => {
      const at = Date.now();
      const result = await does(job, found);
      found.push({ name: job.name, at, result });
      if (found.length === count) resolve(found);
      return result;
    }, more);
  });
}

const trials = {
  async delay() {
    const begun = Date.now();
    await queue.add("later", {}, { delay: 1000 });
    const [first] = await done(1);
    assert.ok(first.at - begun >= 900);
  },
  async planned_times() {
    await queue.upsertJobScheduler("nightly", { pattern: "30 3 * * *", tz: "Europe/Berlin" }, { name: "n" });
    const next = new Date((await queue.getJobSchedulers())[0].next);
    const [hour, minute] = next.toLocaleTimeString("de-DE", { timeZone: "Europe/Berlin" }).split(":");
    assert.deepEqual([hour, minute], ["03", "30"]);
  },
  async retries() {
    await queue.add("again", {}, { attempts: 3, backoff: { type: "exponential", delay: 200 } });
    const times = [];
    await done(1, async () => {
      times.push(Date.now());
      if (times.length < 3) throw new Error("again");
    });
    assert.ok(times[1] - times[0] >= 190 && times[2] - times[1] >= 390);
  },
  async priority() {
    await queue.add("low", {}, { priority: 9 });
    await queue.add("high", {}, { priority: 1 });
    assert.deepEqual((await done(2)).map((each) => each.name), ["high", "low"]);
  },
  async once() {
    const [first, second] = [await queue.add("a", {}, { jobId: "same" }), await queue.add("b", {}, { jobId: "same" })];
    assert.equal(first.id, second.id);
    assert.equal(await queue.getJobCountByTypes("waiting"), 1);
  },
  async results() {
    const events = new bullmq.QueueEvents("TRIED", { connection });
    open.push(events);
    await events.waitUntilReady();
    const job = await queue.add("sum", { a: 3, b: 4 });
    worker(async ({ data }) => data.a + data.b);
    assert.equal(await job.waitUntilFinished(events, 30_000), 7);
  },
  async chains() {
    const flow = new bullmq.FlowProducer({ connection });
    open.push(flow);
    await flow.add({ name: "second", queueName: "TRIED",
      children: [{ name: "first", queueName: "TRIED" }] });
    const found = await done(2, async (job) =>
      job.name === "first" ? 7 : Object.values(await job.getChildrenValues()));
    assert.deepEqual(found.map((each) => [each.name, each.result]), [["first", 7], ["second", [7]]]);
  },
  async groups() {
    const flow = new bullmq.FlowProducer({ connection });
    open.push(flow);
    const children = [1, 2, 3].map((number) => ({ name: `part ${number}`, queueName: "TRIED" }));
    await flow.add({ name: "all", queueName: "TRIED", children });
    const found = await done(4);
    assert.equal(found[3].name, "all");
  },
  async rate() {
    for (let number = 0; number < 3; number += 1) await queue.add("one", {});
    const found = await done(3, async () => {}, { limiter: { max: 1, duration: 500 } });
    assert.ok(found[2].at - found[0].at >= 900);
  },
  async at_once() {
    await queue.setGlobalConcurrency(1);
    let now = 0, most = 0;
    for (let number = 0; number < 4; number += 1) await queue.add("one", {});
    await done(4, async () => {
      most = Math.max(most, now += 1);
      await new Promise((resolve) => setTimeout(resolve, 50));
      now -= 1;
    }, { concurrency: 4 });
    assert.equal(most, 1);
  },
};

await trials[name]();
await Promise.all(open.reverse().map((each) => each.close()));
process.exit(0);
