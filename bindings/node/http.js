'use strict';
/**
 * Records the requests of an HTTP server, by method, route and class of status, and those in
 * flight: `http.createServer(measured(listener))`, or `app.use(middleware())` in Express.
 */
const { Histogram, InFlight, now, tag } = require('./index.js');

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'CONNECT', 'OPTIONS',
  'TRACE']);

/** Histograms of a process; requests of further routes have the route `other`. */
const HISTOGRAMS_MAX = 1000;

/**
 * Route of Express, if it has one, without the path of a router that is mounted elsewhere: of that,
 * Express tells what was requested, not its pattern. Each distinct label is a series.
 */
function expressRoute(request) {
  const route = request.route?.path;
  return typeof route === 'string' ? route : '';
}

let metrics;

function shared() {
  metrics ??= {
    durations: new Map(),
    inFlight: new InFlight(
      { name: 'http_server_requests_in_flight', help: 'Requests that are being answered.' },
      ['method']),
    tags: new Map([...METHODS, 'other'].map((method) => [method, tag(method)])),
    number: 0,
  };
  return metrics;
}

function duration(method, route, status) {
  const { durations } = shared();
  let key = `${method} ${status} ${route}`;
  if (durations.size >= HISTOGRAMS_MAX && !durations.has(key)) {
    route = 'other';
    key = `${method} ${status} ${route}`;
  }
  let histogram = durations.get(key);
  if (histogram === undefined) {
    histogram = new Histogram({
      name: 'http_server_request_duration', unit: 'ns', help: 'Time to answer a request.',
      labels: { method, route, status }, role: 'timing',
    });
    durations.set(key, histogram);
  }
  return histogram;
}

/** Measures one request, until its answer is sent or the connection is closed. */
function measure(request, response, route) {
  const { inFlight, tags } = shared();
  const since = now();
  const method = METHODS.has(request.method) ? request.method : 'other';
  const operation = inFlight.begin(++metrics.number, tags.get(method));
  response.once('close', () => {
    operation.end();
    const status = response.writableFinished ? `${Math.floor(response.statusCode / 100)}xx`
      : 'aborted';
    duration(method, route(request), status).recordSince(since);
  });
}

/** Middleware of Connect and Express. */
function middleware({ route = expressRoute } = {}) {
  return (request, response, next) => {
    measure(request, response, route);
    next();
  };
}

/** A listener of `http.Server` around another one. */
function measured(listener, { route = expressRoute } = {}) {
  return (request, response) => {
    measure(request, response, route);
    return listener(request, response);
  };
}

module.exports = { measured, middleware };
