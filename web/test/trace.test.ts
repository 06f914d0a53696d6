import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import {
  attributesOf,
  externalUrl,
  readTrace,
  visibleRows,
  type TraceJson,
} from "../src/lib/trace";

const FIXTURE = join(import.meta.dirname, "../../testdata/traces/checkout.json");
const checkout = () => readTrace(JSON.parse(readFileSync(FIXTURE, "utf8")) as TraceJson);
const MS = 1e6;

interface SpanTimes {
  id: string;
  parent?: string;
  from: number;
  to: number;
}

/** A trace of one service with times in milliseconds. */
function traceOf(...spans: SpanTimes[]): TraceJson {
  const list = spans.map(({ id, parent, from, to }) => ({
    ...{ spanId: id, name: id, startTimeUnixNano: `${1_000 + from}000000` },
    ...{ endTimeUnixNano: `${1_000 + to}000000`, parentSpanId: parent ?? "" },
  }));
  return { trace: { resourceSpans: [{ scopeSpans: [{ spans: list }] }] } };
}

test("spans are ordered as a tree, each before its children", () => {
  const { spans, base, from, to, services } = checkout();
  const rows = spans.map(({ name, depth, size }) => `${"  ".repeat(depth)}${name} ${size}`);
  expect(rows).toEqual([
    "GET /checkout 8",
    "  POST /orders 7",
    "    POST /orders 6",
    "      SELECT orders 1",
    "      charge 4",
    "        charge 3",
    "          fraud check 1",
    "          send audit 1",
    "consume audit 1",
    "loop a 2",
    "  loop b 1",
  ]);
  expect(base).toBe(1_794_225_600_000_000_000n);
  expect([from, to]).toEqual([0, 140 * MS]);
  expect([...services.keys()]).toEqual(["frontend", "shop", "payment", "audit"]);
  expect(spans.map(({ kind }) => kind).slice(0, 3)).toEqual(["server", "client", "server"]);
});

test("self time is that in which no child ran, and children may overlap", () => {
  const { spans, services } = checkout();
  const selfMs = (name: string) => spans.find((one) => one.name === name)!.selfTime / MS;
  // 0 to 5 and 115 to 120.
  expect(selfMs("GET /checkout")).toBe(10);
  // 30 to 35, because 90 to 95 have two children, and the last one outlasts it.
  expect(spans.find(({ id }) => id.endsWith("c1"))!.self).toEqual([[30 * MS, 35 * MS]]);
  expect(services.get("payment")).toBe((5 + 60 + 40) * MS);
});

test("problems of spans are named, and cycles end", () => {
  const { spans, duplicates } = checkout();
  expect(duplicates).toBe(1);
  const problems = spans.filter((one) => one.problems.length > 0);
  expect(problems.map(({ name, problems, notes }) => [name, problems.join(), notes])).toEqual([
    ["POST /orders", "error", ["Failed: payment declined."]],
    ["charge", "error", ["Failed."]],
    ["charge", "skew", ["It begins 2 ms before its parent: the clocks differ."]],
    [
      "send audit",
      "skew",
      ["It ends 22 ms after its parent: the clocks differ, or the parent did not wait."],
    ],
    ["consume audit", "orphan", ["Its parent 00000000000000fe was not received."]],
    ["loop a", "cycle", ["It is its own ancestor: it is shown without its parent."]],
    // Its parent begins before it and ends with it.
  ]);
});

test("the critical path follows the children that ended last", () => {
  const trace = readTrace(
    traceOf(
      { id: "root", from: 0, to: 100 },
      { id: "early", parent: "root", from: 5, to: 30 },
      { id: "late", parent: "root", from: 40, to: 90 },
      { id: "beside", parent: "root", from: 35, to: 80 },
      { id: "async", parent: "root", from: 95, to: 150 },
      { id: "inner", parent: "late", from: 50, to: 90 },
    ),
  );
  const critical = trace.spans.filter(({ isCritical }) => isCritical).map(({ id }) => id);
  expect(critical).toEqual(["root", "early", "late", "inner"]);
});

test("a span is its own parent, two are each other's, and a chain is long", () => {
  const self = readTrace(traceOf({ id: "a", parent: "a", from: 0, to: 1 }));
  expect(self.spans.map(({ problems }) => problems.join())).toEqual(["cycle"]);
  // A tail that leads into a cycle.
  const tail = readTrace(
    traceOf(
      { id: "tail", parent: "a", from: 0, to: 1 },
      { id: "a", parent: "b", from: 0, to: 1 },
      { id: "b", parent: "a", from: 0, to: 1 },
    ),
  );
  expect(tail.spans).toHaveLength(3);
  expect(tail.spans.filter(({ problems }) => problems.includes("cycle"))).toHaveLength(1);
  const chain = Array.from({ length: 20_010 }, (_, at) => ({
    ...{ id: `s${at}`, from: 0, to: 1 },
    ...(at > 0 ? { parent: `s${at - 1}` } : {}),
  }));
  const long = readTrace(traceOf(...chain));
  expect([long.spans.length, long.omitted, long.spans.at(-1)!.depth]).toEqual([20_000, 10, 19_999]);
});

test("a clock that is hours off does not squash the axis", () => {
  const spans = [
    { id: "root", from: 0, to: 100 },
    { id: "near", parent: "root", from: -10, to: 50 },
  ];
  const near = readTrace(traceOf(...spans));
  expect(near.to - near.from).toBe(110 * MS);
  const far = readTrace(traceOf(...spans, { id: "far", parent: "root", from: 9e6, to: 9e6 + 1 }));
  expect(far.to - far.from).toBe(100 * MS);
  expect(far.spans.find(({ id }) => id === "far")!.problems).toEqual(["skew"]);
});

test("a trace without spans is empty", () => {
  expect(readTrace({ trace: {} })).toMatchObject({ spans: [], from: 0, to: 1, duplicates: 0 });
});

test("a collapsed span hides its descendants", () => {
  const trace = checkout();
  const names = visibleRows(trace, new Set([trace.spans[2]!, trace.spans[9]!]));
  expect(names.map(({ name }) => name)).toEqual([
    "GET /checkout",
    "POST /orders",
    "POST /orders",
    "consume audit",
    "loop a",
  ]);
});

test("values of attributes are texts", () => {
  const charge = checkout().spans.find(({ id }) => id.endsWith("c1"))!;
  expect(attributesOf(charge.json.attributes)).toEqual([
    ["amounts", "[5, 0.5]"],
    ["card", "{brand=v}"],
    ["retry", "false"],
  ]);
  expect(attributesOf([{ key: "none" }, { key: "empty", value: {} }])).toEqual([
    ["none", ""],
    ["empty", ""],
  ]);
});

test("the address of a trace elsewhere is that of the setting", () => {
  expect(externalUrl("https://t/{trace_id}?span={span_id}", "ab")).toBe("https://t/ab?span=");
});
