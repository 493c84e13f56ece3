// GroupMQ, the one free queue with ordered groups: `fill URL KEYS PER_KEY` from standard input, or `work URL`.
// Its defaults, the concurrency of 1 among them. Lines in BENCH_RECORD as tests/bench/record.py has them.
import fs from 'node:fs';
import readline from 'node:readline';
import Redis from 'ioredis';
import { Queue, Worker } from 'groupmq';

const [verb, url] = process.argv.slice(2);
const redis = new Redis(url, { maxRetriesPerRequest: null });
const queue = new Queue({ redis, namespace: 'bench' });
const pad = (value, width) => String(value).padStart(width, '0');
const line = (key, n) => `${pad(process.hrtime.bigint(), 20)} ${pad(key, 9)} ${pad(n, 9)}\n`;

if (verb === 'fill') {
  for await (const text of readline.createInterface({ input: process.stdin })) {
    const [key, n] = text.split(' ').map(Number);
    await queue.add({ groupId: `g${key}`, data: { key, n } });
  }
  process.exit(0);
}

const path = process.env.BENCH_RECORD;
const ms = 1000 * Number(process.env.BENCH_TURN_SECONDS || '0');
const jobs = fs.openSync(`${path}.jobs.${process.pid}`, 'w');
const head = Buffer.alloc(8);
let count = 0n;
fs.writeSync(jobs, head, 0, 8, 0);

const worker = new Worker({
  queue,
  handler: async (job) => {
    if (ms) await new Promise((resolve) => setTimeout(resolve, ms));
    fs.writeSync(jobs, line(job.data.key, job.data.n), 8 + 41 * Number(count));
    head.writeBigUInt64LE(++count);
    fs.writeSync(jobs, head, 0, 8, 0);
  },
});
worker.on('error', (error) => console.error(error));
await redis.ping();
fs.writeFileSync(`${path}.ready.${process.pid}`, '');
while (!fs.existsSync(`${path}.go.now`)) await new Promise((resolve) => setTimeout(resolve, 1));
worker.run();
