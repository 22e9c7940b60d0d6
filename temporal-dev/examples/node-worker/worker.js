// Jobs in JavaScript: a plain Temporal worker. `npm install && npm start`, beside `make dev`.
//
// A job's activity has one argument, a JobRun (activities/sdk/schemas/job-run.schema.json), and answers with its result. What else
// is told here is optional, and each part says what it is good for.

import os from 'node:os';
import { Context } from '@temporalio/activity';
import { ApplicationFailure, Client, Connection } from '@temporalio/client';
import { NativeConnection, Worker } from '@temporalio/worker';

const address = process.env.TEMPORAL_ADDRESS ?? 'localhost:7233';
const namespace = process.env.TEMPORAL_NAMESPACE ?? 'default';
const taskQueue = process.env.TASK_QUEUE ?? 'node-jobs';
const identity = `node:${process.pid}@${os.hostname()}`;

const activities = {
  // A short job: it ends long before anybody waits for a heartbeat.
  async count_words(run) {
    const words = run.payload.text.split(/\s+/).filter(Boolean);
    if (words.length === 0) {
      // A failure that is not retryable ends the run at once. Any other one is retried as the job says.
      throw ApplicationFailure.nonRetryable('there is nothing to count', 'PermanentError');
    }
    // Give the key to whatever you call: it is the same in every attempt.
    return { words: words.length, idempotency_key: run.idempotency_key };
  },

  // A job that is silent for long: with the heartbeat timeout that jobs have by default, 30 seconds, it would count as lost. Where
  // heartbeats are not possible, "heartbeat_timeout_seconds": null leaves the attempt's own timeout as the only bound. The price:
  // the death of its worker is noticed as late as that, and a cancellation does not reach it.
  async sleep_in_silence(run) {
    await new Promise((resolve) => setTimeout(resolve, run.payload.seconds * 1000));
    return 'slept';
  },

  // A long job. Its heartbeats show that it lives, let a cancellation in, and carry the checkpoint: after a crash the next
  // attempt goes on from the last one. The report (activities/sdk/schemas/attempt.schema.json) may stand in heartbeats, in the
  // result, and as the first detail of a failure.
  async export_pages(run) {
    const startedAt = new Date().toISOString();
    const report = (checkpoint, result = null) => ({
      horarium: 'attempt/1', started_at: startedAt, worker: identity, result, checkpoint,
    });
    let page = run.checkpoint?.page ?? 0;
    const first = page + 1;
    while (page < run.payload.pages) {
      await Context.current().sleep('100ms'); // the work; ends with an error when the run is cancelled
      page += 1;
      Context.current().heartbeat(report({ page }));
      if (run.attempt === 1 && page === run.payload.hang_up_at) {
        throw ApplicationFailure.create({
          message: 'the store hung up', type: 'ConnectionError', details: [report({ page })],
        });
      }
    }
    return report(null, { first, last: page });
  },
};

// What the activities take, for the check at registration. Optional: without it, payloads are not checked.
const announcement = {
  version: '1', // change it with what stands below
  activities: {
    count_words: {
      payload_schema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    },
    sleep_in_silence: { payload_schema: null }, // known, and not checked
    export_pages: {
      payload_schema: {
        type: 'object',
        properties: { pages: { type: 'integer', minimum: 1 }, hang_up_at: { type: 'integer' } },
        required: ['pages'],
      },
    },
  },
};

async function announce(client) {
  await client.workflow.signalWithStart('HorariumCatalogue', {
    workflowId: `catalogue/${taskQueue}`,
    taskQueue: 'horarium',
    signal: 'announce',
    signalArgs: [announcement],
  });
}

const client = new Client({ connection: await Connection.connect({ address }), namespace });
const worker = await Worker.create({
  connection: await NativeConnection.connect({ address }),
  namespace,
  taskQueue,
  activities,
  identity,
  maxHeartbeatThrottleInterval: '1s', // by default a checkpoint may be most of the heartbeat timeout old
});

await announce(client);
const renewal = setInterval(() => announce(client).catch(console.error), 10 * 60 * 1000);
try {
  await worker.run(); // until SIGTERM or Ctrl-C
} finally {
  clearInterval(renewal);
  await client.connection.close();
}
