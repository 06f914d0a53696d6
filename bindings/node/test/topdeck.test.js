'use strict';
/** Tests of the package. `TOPDECK_BIN` reads what was recorded. */
const assert = require('node:assert');
const { execFileSync } = require('node:child_process');
const http = require('node:http');
const { test } = require('node:test');
const topdeck = require('../index.js');
const { recordEventLoopDelay } = require('../event-loop.js');
const { measured, middleware } = require('../http.js');

/** Metrics with this name, by their labels, as read by topdeck. */
function metrics(name) {
  const output = execFileSync(process.env.TOPDECK_BIN, ['cat', '--json', topdeck.path()]);
  const found = JSON.parse(output).metrics.filter((metric) => metric.name === name);
  return new Map(found.map((metric) => [Object.values(metric.labels).join(' '), metric]));
}

test('wrong arguments throw', () => {
  const took = new topdeck.Histogram('errors_took');
  for (const value of [-1, NaN, Infinity, 2 ** 64]) {
    assert.throws(() => took.record(value), RangeError);
  }
  assert.throws(() => took.record(2n ** 64n), RangeError);
  assert.throws(() => took.record('1'), TypeError);
  assert.throws(() => took.record(), TypeError);
  assert.throws(() => new topdeck.UpDownCounter('errors').add(2 ** 63), RangeError);
  assert.throws(() => new topdeck.Counter({ name: 1 }), TypeError);
  assert.throws(() => new topdeck.Counter('a\0b'), TypeError);
  assert.throws(() => new topdeck.Counter({ name: 'a', role: 'captain' }), TypeError);
  assert.throws(() => new topdeck.Counter({ name: 'a', related: {} }), TypeError);
  assert.throws(() => new topdeck.Counter({ name: 'a', labels: { a: 1 } }), TypeError);
  assert.throws(() => new topdeck.InFlight('a', ['1', '2', '3', '4', '5']), RangeError);
});

test('a timer records once', async () => {
  const took = new topdeck.Histogram({ name: 'timer_took', unit: 'ns' });
  const timer = took.start();
  assert.ok(timer.stop() >= 0);
  timer.stop();
  took.start().cancel();
  assert.throws(() => took.time(() => { throw new Error('a bug'); }), /a bug/);
  assert.strictEqual(await took.time(async () => 3), 3);
  await assert.rejects(took.time(() => Promise.reject(new Error('a bug'))), /a bug/);
  assert.strictEqual(metrics('timer_took').get('').count, 4);
});

test('more operations than a table has at first', () => {
  const work = new topdeck.InFlight('places', ['device']);
  const sda = topdeck.tag('sda');
  const all = Array.from({ length: 1000 }, (_, number) => work.begin(number, sda));
  all.slice(0, 999).forEach((operation) => operation.end());
  all[0].end();
  const found = metrics('places').get('');
  assert.deepStrictEqual([found.count, found.started, found.finished], [1, 1000, 999]);
});

/** Statuses of requests to a server on a free port. */
async function request(listener, paths) {
  const server = http.createServer(listener);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    for (const path of paths) {
      const answer = await fetch(`http://127.0.0.1:${server.address().port}${path}`);
      await answer.arrayBuffer();
    }
  } finally {
    await new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  }
}

test('requests are recorded', async () => {
  const listener = measured((incoming, response) => {
    response.statusCode = incoming.url === '/' ? 200 : 404;
    response.end('text');
  }, { route: () => 'node' });
  await request(listener, ['/', '/', '/nothing']);
  // As Express: the route is known when the request was answered.
  const express = middleware();
  await request((incoming, response) => express(incoming, response, () => {
    // The path of a mounted router is what was requested, not its pattern.
    incoming.baseUrl = '/shops/7';
    incoming.route = { path: '/items/:id' };
    response.end();
  }), ['/shops/7/items/1']);
  const found = metrics('http_server_request_duration');
  assert.strictEqual(found.get('GET node 2xx').count, 2);
  assert.strictEqual(found.get('GET node 4xx').count, 1);
  assert.strictEqual(found.get('GET /items/:id 2xx').count, 1);
  assert.strictEqual(metrics('http_server_requests_in_flight').get('').count, 0);
});

test('a blocked event loop is recorded', async () => {
  const stop = recordEventLoopDelay({ intervalMs: 2 });
  await new Promise((resolve) => setTimeout(resolve, 5));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 30);
  await new Promise((resolve) => setTimeout(resolve, 5));
  stop();
  const found = metrics('nodejs_event_loop_delay').get('');
  assert.ok(found.max.estimate > 20e6, JSON.stringify(found.max));
  assert.ok(found.count >= 10, 'a value for each interval in which the loop was blocked');
});
