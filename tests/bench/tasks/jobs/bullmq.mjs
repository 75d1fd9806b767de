// BullMQ: node bullmq.mjs {client|worker} PORT FOLDER, where FOLDER has node_modules/bullmq.
import { closeSync, openSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [what, port, folder] = process.argv.slice(2);
const { Queue, Worker } = createRequire(`${folder}/`)("bullmq");
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };

if (what === "worker") {
  const marks = new Set(process.env.OMQ_BENCH_MARKS.split(" ").map(Number));
  let count = 0;
  new Worker("JOBS", async () => {
    count += 1;
    if (marks.has(count)) closeSync(openSync(`${process.env.OMQ_BENCH_PLACE}.${count}`, "w"));
  }, { connection, concurrency: 1 });
} else {
  const queue = new Queue("JOBS", { connection });
  for await (const line of createInterface({ input: process.stdin })) {
    const [, total, batch] = line.split(" ").map(Number);
    for (let done = 0; done < total; done += batch) {
      if (batch === 1) await queue.add("job", { id: 7 });
      else await queue.addBulk(Array.from({ length: batch }, () => ({ name: "job", data: { id: 7 } })));
    }
    console.log("put");
  }
  await queue.close();
}
