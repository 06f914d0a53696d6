import { expect, test } from "vitest";

import { Distribution, exact } from "../src/lib/distribution";
import {
  countBounds,
  findService,
  inFlightOf,
  latencySelector,
  proposedWaitsOf,
  serviceKey,
  sortStatements,
  statementKey,
  statementName,
  toStatements,
  waitsSetting,
  type WireService,
} from "../src/lib/wire";

const distribution = (...values: number[]) =>
  new Distribution(
    values.map((value) => ({ lower: value, upper: value, count: 1 })),
    exact(values.reduce((a, b) => a + b, 0)),
  );
const series = (labels: Record<string, string>, ...values: number[]) => ({
  labels,
  points: [{ time: 0, value: distribution(...values) }],
});

const RESULT = {
  series: [
    series({ verb: "GET", statement: "/a", outcome: "ok" }, 1, 2, 3),
    series({ verb: "GET", statement: "/a", outcome: "error" }, 4),
    series({ verb: "GET", statement: "/b", outcome: "ok" }, 9),
    series({ verb: "Startup", outcome: "ok" }, 5),
    series({ statement: "other", overflow: "true", outcome: "ok" }, 20),
    series({ verb: "GET", statement: "other", outcome: "ok" }, 7),
  ],
};

test("outcomes of a statement are one row, and the other statements are apart", () => {
  const found = toStatements(RESULT);
  const rows = found.map((one) => [statementName(one), one.latency.count, one.errors]);
  expect(rows).toEqual([
    ["GET /a", 4, 1],
    ["GET /b", 1, 0],
    ["Startup", 1, 0],
    ["other statements", 1, 0],
    ["GET other", 1, 0],
  ]);
});

test("statements with the same words have keys of their own", () => {
  const found = toStatements({
    series: [
      series({ verb: "GET", statement: "/a b", outcome: "ok" }, 1),
      series({ verb: "GET /a", statement: "b", outcome: "ok" }, 1),
      series({ verb: "other", statement: "", outcome: "ok" }, 1),
      series({ statement: "other", outcome: "ok" }, 1),
      series({ statement: "other", overflow: "true", outcome: "ok" }, 1),
    ],
  });
  expect(found.map(statementKey)).toEqual([
    "GET /a b",
    "GET%20%2Fa b",
    "other ",
    " other",
    "other",
  ]);
});

test("services with the same name are apart by their protocol", () => {
  const service = (name: string, protocol: string): WireService => ({
    name,
    protocol,
    latency: Distribution.EMPTY,
    errors: 0,
    waits: 0,
    notMeasured: new Map(),
    inFlight: 0,
    oldest: 0,
  });
  const services = [service("a", "http"), service("a", "redis"), service("b", "redis")];
  const keys = services.map((one) => serviceKey(one, services));
  expect(keys.map((key) => latencySelector(key))).toEqual([
    'wire_latency{service="a", protocol="http"}',
    'wire_latency{service="a", protocol="redis"}',
    'wire_latency{service="b"}',
  ]);
  expect(keys.map((key) => findService(services, key))).toEqual(services);
  expect(findService(services, { name: "a", protocol: "" })).toBe(services[0]);
  expect(findService(services, { name: "b", protocol: "http" })).toBeUndefined();
});

test("statements are ordered by time, or by requests above the threshold", () => {
  const keys = (order: "time" | "above", threshold: number | null) =>
    sortStatements(toStatements(RESULT), order, threshold).map(statementName);
  expect(keys("time", 2.5)).toEqual([
    "other statements",
    "GET /a",
    "GET /b",
    "GET other",
    "Startup",
  ]);
  expect(keys("above", 2.5)).toEqual([
    "GET /a",
    "other statements",
    "GET /b",
    "GET other",
    "Startup",
  ]);
  expect(keys("above", null)).toEqual(keys("time", null));
});

test("a selector has the labels of the statement, and quotes them", () => {
  const [statement, , , other] = toStatements(RESULT);
  expect(latencySelector({ name: 'a"b', protocol: "" })).toBe('wire_latency{service="a\\"b"}');
  const service = { name: "s", protocol: "" };
  expect(latencySelector(service, statement)).toBe(
    'wire_latency{service="s", verb="GET", statement="/a"}',
  );
  expect(latencySelector(service, other)).toBe('wire_latency{service="s", overflow="true"}');
});

test("a count has the bounds with and without what was not measured", () => {
  expect(countBounds(5, 0)).toEqual({ lower: 5, estimate: 5, upper: 5 });
  expect(countBounds(5, 2)).toEqual({ lower: 5, estimate: 5, upper: 7 });
});

test("requests in flight are of their service, with the age of the oldest one", () => {
  const one = { protocol: "postgres", verb: "Query", wait: false, requests: 2 };
  const status = {
    as_of_ns: 10e9,
    services: [],
    in_flight: [
      { ...one, service: "shop", statement: "select $1", oldest_ns: 4e9 },
      { ...one, service: "cache", statement: "begin", oldest_ns: 5e9 },
      {
        ...one,
        service: "shop",
        protocol: "redis",
        verb: "BLPOP",
        statement: "",
        wait: true,
        oldest_ns: 11e9,
      },
    ],
  };
  const query = { name: "Query select $1", isWait: false, requests: 2, age: 6 };
  const pop = { name: "BLPOP", isWait: true, requests: 2, age: 0 };
  expect(inFlightOf(status, { name: "shop", protocol: "" })).toEqual([query, pop]);
  expect(inFlightOf(status, { name: "shop", protocol: "postgres" })).toEqual([query]);
  expect(inFlightOf(null, { name: "shop", protocol: "" })).toEqual([]);
});

test("proposed waits are of their service, with the setting that accepts them", () => {
  const wait = { timeout_ns: 5e9, operations: 41, long_operations: 43 };
  const status = {
    as_of_ns: 1,
    in_flight: [],
    services: [
      { service: "shop", protocol: "http", proposed_waits: [{ ...wait, wait: "GET /poll/{n}" }] },
      { service: "shop", protocol: "redis", proposed_waits: [] },
      { service: "cache", protocol: "http", proposed_waits: [{ ...wait, wait: "GET /x" }] },
      { service: "shop", protocol: "postgres", proposed_waits: [{ ...wait, wait: 'Query "a"' }] },
    ],
  };
  const poll = { ...wait, wait: "GET /poll/{n}" };
  const both = [poll, { ...poll, wait: 'Query "a"' }];
  expect(proposedWaitsOf(status, { name: "shop", protocol: "" })).toEqual(both);
  expect(proposedWaitsOf(status, { name: "shop", protocol: "http" })).toEqual([poll]);
  expect(proposedWaitsOf(null, { name: "shop", protocol: "" })).toEqual([]);
  const setting = 'waits = ["GET /poll/{n}", "Query \\"a\\""]';
  expect(waitsSetting(both)).toBe(setting);
});
