'use strict';
/** Records what bindings/conformance/suite.py expects: `conformance.js PART`. */
const assert = require('node:assert');
const { readFileSync } = require('node:fs');
const { Worker, isMainThread, workerData } = require('node:worker_threads');
const topdeck = require('../index.js');

function check(...metrics) {
  for (const metric of metrics) {
    assert.strictEqual(metric.error, null);
  }
}

/** Blocks the thread. */
function sleep(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

const parts = {
  kinds() {
    const answered = new topdeck.Counter({
      name: 'answered_total', help: 'Answers.', labels: { route: 'home', code: '200' },
    });
    answered.add();
    answered.add(41);
    const balance = new topdeck.UpDownCounter({ name: 'balance', unit: 'By' });
    balance.add(10);
    balance.add(-13n);
    const size = new topdeck.Gauge({ name: 'pool_size', unit: '1', role: 'capacity' });
    size.set(100);
    const used =
      new topdeck.Gauge({ name: 'pool_used', unit: '1', role: 'usage', related: size });
    used.set(-7);
    const load = new topdeck.FloatGauge('load');
    load.set(0.25);
    const state = new topdeck.Text('state');
    state.set('1.2.3');
    assert.ok(state.set('größer'));
    assert.ok(!state.set(`a${'ö'.repeat(200)}`));
    const alive = new topdeck.Heartbeat('alive', { everyNs: 1e9 });
    alive.beat();
    alive.beat();
    const took = new topdeck.Histogram({ name: 'took', unit: 'ns', role: 'timing' });
    const values = [0, 1, 2n, 1000, 123456789, 2n ** 53n + 1n, ...Array(3).fill(2n ** 63n - 1n)];
    values.forEach((value) => took.record(value));
    const slept = new topdeck.Histogram({ name: 'slept', unit: 'ns' });
    slept.time(() => sleep(5));
    const work = new topdeck.InFlight('work', ['device', 'operation']);
    const [sda, sdb, read] = ['sda', 'sdb', 'read'].map(topdeck.tag);
    work.begin(17, sda, read);
    const second = work.begin(18, sdb);
    work.begin(19);
    second.end();
    second.end();
    check(answered, balance, size, used, load, state, alive, took, slept, work);
  },

  dies() {
    const answered = new topdeck.Counter('answered_total');
    const took = new topdeck.Histogram({ name: 'took', unit: 'ns' });
    const work = new topdeck.InFlight('work', ['device']);
    work.begin(42, topdeck.tag('sda'));
    for (let i = 0; i < 1000; i++) {
      answered.add(1);
      took.record(i);
    }
    check(answered, took, work);
    console.log('ready');
    setInterval(() => {}, 1000);
  },

  threads() {
    return concurrently(8, 3, Number(process.argv[3]));
  },

  buckets() {
    const took = new topdeck.Histogram('took');
    check(took);
    for (const line of readFileSync(process.argv[3], 'utf8').trim().split('\n')) {
      took.record(Number(line));
    }
  },

  limits() {
    for (let i = 0; i < 1100; i++) {
      new topdeck.Counter({ name: 'many_total', labels: { n: String(i) } }).add();
    }
    console.log(new topdeck.Counter('').error);
    // An object has no duplicate label.
    console.log('duplicate label');
    console.log(new topdeck.Counter('x'.repeat(5000)).error);
    new topdeck.Counter('twice');
    const conflict = new topdeck.Histogram('twice');
    conflict.record(1);
    console.log(conflict.error);
  },

  off() {
    const answered = new topdeck.Counter('answered_total');
    answered.add(1);
    new topdeck.Histogram('took').record(1);
    new topdeck.Text('state').set('x');
    new topdeck.Heartbeat('alive').beat();
    new topdeck.InFlight('work', ['device']).begin(1, topdeck.tag('sda')).end();
    console.log(answered.error);
  },
};

/** Rounds of worker threads that start to record at the same time. */
async function concurrently(count, rounds, records) {
  for (let round = 0; round < rounds; round++) {
    const started = new Int32Array(new SharedArrayBuffer(4));
    const workers = Array.from({ length: count }, () =>
      new Worker(__filename, { workerData: { count, records, started } }));
    await Promise.all(workers.map((worker) => new Promise((resolve, reject) => {
      worker.once('error', reject);
      worker.once('exit', resolve);
    })));
  }
}

function runWorker({ count, records, started }) {
  const answered = new topdeck.Counter('answered_total');
  const took = new topdeck.Histogram({ name: 'took', unit: 'ns' });
  const work = new topdeck.InFlight('work');
  check(answered, took, work);
  answered.add();
  Atomics.add(started, 0, 1);
  Atomics.notify(started, 0);
  for (let found = Atomics.load(started, 0); found < count; found = Atomics.load(started, 0)) {
    Atomics.wait(started, 0, found);
  }
  const operation = work.begin(1);
  for (let i = 0; i < records; i++) {
    answered.add();
    took.record(i);
  }
  operation.end();
}

if (!isMainThread) {
  runWorker(workerData);
} else {
  const part = parts[process.argv[2]];
  if (part === undefined) {
    console.log('unsupported');
  } else {
    part();
  }
}
