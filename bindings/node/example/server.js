'use strict';
/**
 * A small server whose requests, storage reads and event loop are recorded: server.js [PORT].
 *
 * Look at it with `topdeck top`; or stop it with kill -9 and run `topdeck post-mortem`.
 */
const http = require('node:http');
const { setTimeout: sleep } = require('node:timers/promises');
const topdeck = require('../index.js');
const { recordEventLoopDelay } = require('../event-loop.js');
const { measured } = require('../http.js');

const read = new topdeck.Histogram({
  name: 'storage_read_duration', unit: 'ns', help: 'Time of a read from storage.', role: 'timing',
});
new topdeck.Text('version').set('1.0.0');
recordEventLoopDelay();

async function answer(request, response) {
  // One in a hundred is slow.
  await read.time(() => sleep(Math.random() < 0.01 ? 20 : 0));
  response.end(`item ${request.url}\n`);
}

const port = Number(process.argv[2] ?? 8080);
http.createServer(measured(answer, { route: () => '/' })).listen(port, '127.0.0.1', () => {
  try {
    console.log(`look at it with \`topdeck top\`; the file is ${topdeck.path()}`);
  } catch (error) {
    console.log(`no metrics: ${error.message}`);
  }
});
