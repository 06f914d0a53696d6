'use strict';
/**
 * Metrics in shared memory: index.d.ts documents what is exported. A metric that could not be
 * registered records nothing, and its property `error` has the reason.
 */
const native = require(process.env.TOPDECK_NODE_ADDON || './build/Release/topdeck.node');

const ROLES = ['other', 'timing', 'capacity', 'usage', 'hit', 'miss', 'size', 'queue', 'error',
  'subcalls'];

/** A metric; the addon adds the functions that record. */
class Metric {
  #handle;

  constructor(kind, description, tags = [], everyNs = 0) {
    const { name, unit = '', help = '', labels = {}, role = 'other', related } =
      typeof description === 'string' ? { name: description } : description;
    const roleNumber = ROLES.indexOf(role);
    if (roleNumber < 0) {
      throw new TypeError(`role: found ${role}, expected one of ${ROLES.join(', ')}`);
    }
    if (related !== undefined && !(related instanceof Metric)) {
      throw new TypeError('related: expected a metric');
    }
    const link = related === undefined ? 0n : related.#handle;
    const pairs = Object.entries(labels).flat();
    const registered =
      native.register(this, kind, [name, unit, help], pairs, roleNumber, link, tags, everyNs);
    this.#handle = registered[0];
    this.error = registered[1];
  }
}

class Counter extends Metric {
  constructor(description) {
    super('counter', description);
  }
}

class UpDownCounter extends Metric {
  constructor(description) {
    super('upDownCounter', description);
  }
}

class Gauge extends Metric {
  constructor(description) {
    super('gauge', description);
  }
}

class FloatGauge extends Metric {
  constructor(description) {
    super('floatGauge', description);
  }
}

class Text extends Metric {
  constructor(description) {
    super('text', description);
  }
}

class Heartbeat extends Metric {
  constructor(description, { everyNs = 0 } = {}) {
    super('heartbeat', description, [], everyNs);
  }
}

class Timer {
  #histogram;
  #since = native.now();

  constructor(histogram) {
    this.#histogram = histogram;
  }

  stop() {
    const took = this.#histogram?.recordSince(this.#since) ?? 0;
    this.#histogram = null;
    return took;
  }

  cancel() {
    this.#histogram = null;
  }
}

class Histogram extends Metric {
  constructor(description) {
    super('histogram', description);
  }

  start() {
    return new Timer(this);
  }

  time(work) {
    const timer = new Timer(this);
    let isPending = false;
    try {
      const result = work();
      if (typeof result?.then === 'function') {
        isPending = true;
        return Promise.resolve(result).finally(() => timer.stop());
      }
      return result;
    } finally {
      if (!isPending) {
        timer.stop();
      }
    }
  }
}

class Operation {
  #place;

  constructor(place) {
    this.#place = place;
  }

  end() {
    if (this.#place !== null) {
      native.operationEnd(this.#place);
      this.#place = null;
    }
  }
}

class InFlight extends Metric {
  #begin;

  constructor(description, tags = []) {
    super('inFlight', description, tags);
    // The addon's function returns the place of the operation.
    this.#begin = this.begin;
    this.begin = (number, ...tagValues) => new Operation(this.#begin(number, ...tagValues));
  }
}

module.exports = {
  Counter, FloatGauge, Gauge, Heartbeat, Histogram, InFlight, Metric, Operation, Text, Timer,
  UpDownCounter, now: native.now, path: native.path, tag: native.tag,
};
