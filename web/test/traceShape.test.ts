import { expect, test } from "vitest";

import { MIN_EXEMPLARS, type ExemplarJson } from "../src/lib/exemplars";
import { readTrace } from "../src/lib/trace";
import {
  compareShapes,
  shapeOf,
  tracesOf,
  weightedMean,
  type TraceShape,
} from "../src/lib/traceShape";

const shape = (weight: number, selfTimes: Record<string, number>): TraceShape => ({
  weight,
  selfTimes: new Map(Object.entries(selfTimes)),
});
const shapes = (count: number, of: (at: number) => TraceShape) =>
  Array.from({ length: count }, (_, at) => of(at));

test("the operation that grew comes first, and the others stay", () => {
  const slow = shapes(30, (at) => shape(1, { "db: SELECT": 900 + (at % 3), "shop: GET": 10 }));
  const rest = shapes(40, (at) => shape(1, { "db: SELECT": 20, "shop: GET": 10 + (at % 2) }));
  const [db, shop] = compareShapes(slow, rest);
  expect([db!.operation, db!.inside.estimate, db!.outside.estimate]).toEqual([
    "db: SELECT",
    901,
    20,
  ]);
  expect(db!.inside.lower).toBeGreaterThan(db!.outside.upper);
  expect([shop!.operation, shop!.inside.estimate]).toEqual(["shop: GET", 10]);
});

test("an operation that only some traces have counts as 0 in the others", () => {
  const half = shapes(20, (at) => shape(1, at % 2 === 0 ? { retry: 100 } : {}));
  const [retry] = compareShapes(
    half,
    shapes(20, () => shape(1, {})),
  );
  expect([retry!.inside.estimate, retry!.outside.estimate]).toEqual([50, 0]);
});

test("few traces are not compared", () => {
  const of = (count: number) => shapes(count, () => shape(1, { a: 1 }));
  expect(compareShapes(of(MIN_EXEMPLARS - 1), of(MIN_EXEMPLARS))).toEqual([]);
  expect(compareShapes(of(MIN_EXEMPLARS), of(MIN_EXEMPLARS - 1))).toEqual([]);
  expect(compareShapes(of(MIN_EXEMPLARS), of(MIN_EXEMPLARS))).toHaveLength(1);
});

test("a trace counts with the weights of its exemplars", () => {
  const { lower, estimate, upper } = weightedMean([shape(3, { a: 10 }), shape(1, { a: 50 })], "a");
  expect(estimate).toBe(20);
  expect(lower).toBe(0);
  expect(upper).toBeGreaterThan(50);
  const one = { value: 1, trace_url: null, labels: {}, attributes: {}, time_ns: 0 };
  const exemplars: ExemplarJson[] = [
    { ...one, trace_id: "a", weight: 2 },
    { ...one, trace_id: null, weight: 9 },
    { ...one, trace_id: "b", weight: null },
    { ...one, trace_id: "a", weight: 3 },
  ];
  expect(tracesOf(exemplars)).toEqual([
    ["a", 5],
    ["b", 1],
  ]);
});

/** A generator of numbers from 0 to 1: mulberry32. */
function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

test("the interval contains the true mean of 95 of 100 populations", () => {
  const draw = random(5);
  let contained = 0;
  for (let population = 0; population < 1_000; population++) {
    const cells = shapes(6, () => shape(1 + 3 * draw(), { a: 100 * draw() }));
    const kept = cells.flatMap(({ weight, selfTimes }) =>
      shapes(10, () => shape(weight, { a: selfTimes.get("a")! * (0.5 + draw()) })),
    );
    const total = cells.reduce((all, { weight }) => all + weight, 0);
    const truth =
      cells.reduce((all, { weight, selfTimes }) => all + weight * selfTimes.get("a")!, 0) / total;
    const { lower, upper } = weightedMean(kept, "a");
    if (lower <= truth && truth <= upper) contained++;
  }
  // Strata make it wider than it needs to be.
  expect(contained).toBeGreaterThanOrEqual(930);
});

test("spans of an operation add up", () => {
  const span = (spanId: string, from: number, to: number) => ({
    ...{ spanId, name: "SELECT", startTimeUnixNano: `${from}`, endTimeUnixNano: `${to}` },
  });
  const attributes = [{ key: "service.name", value: { stringValue: "db" } }];
  const trace = readTrace({
    trace: {
      resourceSpans: [
        { resource: { attributes }, scopeSpans: [{ spans: [span("a", 0, 5), span("b", 9, 12)] }] },
      ],
    },
  });
  expect([...shapeOf(trace, 2).selfTimes]).toEqual([["db: SELECT", 8]]);
});
