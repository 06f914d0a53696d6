'use strict';
/**
 * Delay of the event loop: how much later than due a timer runs. A callback that blocks the loop
 * for 50 ms delays all others for up to that time.
 */
const { Histogram, now } = require('./index.js');

/** Starts to record; returns a function that stops it. The timer does not keep Node running. */
function recordEventLoopDelay({ intervalMs = 10, name = 'nodejs_event_loop_delay' } = {}) {
  if (!(intervalMs >= 1)) {
    throw new RangeError(`intervalMs is ${intervalMs}: it must be at least 1`);
  }
  const histogram = new Histogram({
    name, unit: 'ns', help: 'Delay of a timer of the event loop.', role: 'timing',
  });
  const intervalNs = intervalMs * 1e6;
  let dueNs = now() + intervalNs;
  const timer = setInterval(() => {
    const currentNs = now();
    const delayNs = Math.max(currentNs - dueNs, 0);
    // Callbacks that were due while the loop was blocked would have waited for the rest of it.
    for (let restNs = delayNs; ; restNs -= intervalNs) {
      histogram.record(Math.max(restNs, 0));
      if (restNs <= intervalNs) {
        break;
      }
    }
    dueNs = currentNs + intervalNs;
  }, intervalMs);
  timer.unref();
  return () => clearInterval(timer);
}

module.exports = { recordEventLoopDelay };
