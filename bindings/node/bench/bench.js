'use strict';
/**
 * Cost of a record beside prom-client and hdr-histogram-js, if they are installed.
 *
 * Nanoseconds per call without the loop: median and best of 7 rounds of a million calls.
 */
const topdeck = require('../index.js');

const CALLS = 1_000_000;
const ROUNDS = 7;
const values = Array.from({ length: 1024 }, (_, at) => 1_000_000 + ((at * 2654435761) & 0xfffff));

function cpuNs() {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}

function round(call) {
  const start = cpuNs();
  for (let i = 0; i < CALLS; i++) {
    call(values[i & 1023]);
  }
  return (cpuNs() - start) / CALLS;
}

function measure(name, call) {
  round(call);
  const rounds = Array.from({ length: ROUNDS }, () => round(call)).sort((a, b) => a - b);
  const [median, best] = [rounds[ROUNDS >> 1], rounds[0]];
  console.log(`${name.padEnd(40)} ${median.toFixed(1).padStart(8)} ${best.toFixed(1).padStart(8)}`);
}

function optional(name) {
  try {
    return require(name);
  } catch {
    console.log(`${name} is not installed`);
    return null;
  }
}

console.log(`${''.padEnd(40)} ${'median'.padStart(8)} ${'best'.padStart(8)}`);
const counter = new topdeck.Counter('bench_total');
const took = new topdeck.Histogram({ name: 'bench_took', unit: 'ns' });
const work = new topdeck.InFlight('bench_work', ['device']);
const sda = topdeck.tag('sda');
measure('Counter.add', () => counter.add(1));
measure('Histogram.record', (value) => took.record(value));
measure('Histogram.start, stop', () => took.start().stop());
measure('InFlight.begin, end', (value) => work.begin(value, sda).end());
measure('an empty function', () => {});
const prometheus = optional('prom-client');
if (prometheus) {
  const total = new prometheus.Counter({ name: 'p_total', help: 'p' });
  const histogram = new prometheus.Histogram({ name: 'p_took', help: 'p' });
  measure('prom-client Counter.inc', () => total.inc());
  measure('prom-client Histogram.observe', (value) => histogram.observe(value / 1e9));
}
const hdr = optional('hdr-histogram-js');
if (hdr) {
  const options = { numberOfSignificantValueDigits: 3, highestTrackableValue: 3.6e12 };
  const histogram = hdr.build(options);
  measure('hdr-histogram-js recordValue', (value) => histogram.recordValue(value));
}
