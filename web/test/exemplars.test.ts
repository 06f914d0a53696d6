import { expect, test } from "vitest";

import {
  compareAttributes,
  describeShare,
  exemplarCells,
  isInside,
  MIN_EXEMPLARS,
  weightedShare,
  type ExemplarJson,
} from "../src/lib/exemplars";

const NOON = Date.parse("2026-11-26T12:00:00Z");
const MINUTE = 60e3;

function exemplar(changes: Partial<ExemplarJson> = {}): ExemplarJson {
  return {
    time_ns: NOON * 1e6,
    value: 1,
    weight: 1,
    trace_id: null,
    trace_url: null,
    labels: {},
    attributes: {},
    ...changes,
  };
}

const list = (count: number, attributes: Record<string, string>, weight = 1) =>
  Array.from({ length: count }, () => exemplar({ attributes, weight }));

test("a cell of a heatmap has the exemplars of its minutes and of its cell of the ladder", () => {
  const at = { from: NOON + 20e3, to: NOON + 30e3 };
  const cells = exemplarCells({ ...at, low: 0.312, high: 0.319 }, 10e3);
  expect([cells.from, cells.to]).toEqual([NOON, NOON + MINUTE]);
  expect(cells.low).toBeCloseTo(0.3, 9);
  expect(cells.high).toBeCloseTo(0.5, 9);
  // The lower bound belongs to the cell, the upper one does not.
  expect(cells.low).toBeLessThan(0.3);
  expect(cells.high).toBeLessThan(0.5);
  // An interval that ends in the column began before it.
  expect(exemplarCells({ ...at, low: 1, high: 2 }, MINUTE).from).toBe(NOON - MINUTE);
});

test.each([
  [300, 500, 300, 500],
  [0.001, 0.0015, 0.001, 0.0015],
  [7, 10, 7, 10],
  [9.9, 10.1, 7, 15],
  [1, 1, 1, 1.5],
])("values from %d to %d touch the cells from %d to %d", (lower, upper, low, high) => {
  // As a bucket is selected: from the double before its lower bound.
  const cells = exemplarCells({ from: 0, to: 1, low: lower * (1 - 2 ** -53), high: upper }, 1);
  expect(cells.low / low).toBeCloseTo(1, 9);
  expect(cells.high / high).toBeCloseTo(1, 9);
});

test("values without a cell of the ladder are not extended", () => {
  const cells = exemplarCells({ from: 0, to: 1, low: -1, high: Infinity }, 1);
  expect([cells.low, cells.high]).toEqual([-1, Infinity]);
  expect(exemplarCells({ from: 0, to: 1, low: -2, high: 0 }, 1).high).toBe(0);
});

test("an exemplar is inside above the lower value, and up to the upper one", () => {
  const of = { from: NOON, to: NOON + MINUTE, low: 1, high: 2 };
  const inside = (value: number, time = NOON) =>
    isInside(exemplar({ value, time_ns: time * 1e6 }), of);
  expect([1, 1.5, 2, 2.5].map((value) => inside(value))).toEqual([false, true, true, false]);
  expect(inside(1.5, NOON - 1)).toBe(false);
});

test("attributes that are more frequent in the selection come first", () => {
  const slow = [
    ...list(30, { user: "ann", zone: "a" }),
    ...list(10, { user: "bob", zone: "a" }, 2),
  ];
  const rest = [...list(5, { user: "ann", zone: "a" }), ...list(45, { zone: "a" })];
  const [user, zone] = compareAttributes(slow, rest);
  expect([user?.name, zone?.name]).toEqual(["user", "zone"]);
  const [ann, bob] = user!.values;
  expect([ann?.value, ann?.inside.estimate, ann?.outside.estimate]).toEqual(["ann", 0.6, 0.1]);
  expect([bob?.inside.estimate, bob?.outside.estimate]).toEqual([0.4, 0]);
  expect(ann!.inside.lower).toBeGreaterThan(ann!.outside.upper);
  expect(describeShare(ann!.inside)).toMatch(/^60 % \(4\d–7\d\)$/);
});

test("shares of few exemplars are hidden", () => {
  const [few, many] = [list(MIN_EXEMPLARS - 1, { a: "b" }), list(MIN_EXEMPLARS, { a: "b" })];
  expect(compareAttributes(few, many)).toEqual([]);
  expect(compareAttributes(many, few)).toEqual([]);
  expect(compareAttributes(many, many)).toHaveLength(1);
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

test("the interval contains the true share of 95 of 100 populations", () => {
  const draw = random(7);
  let contained = 0;
  for (let population = 0; population < 1_000; population++) {
    // Cells of a ladder with tails of their own: of each, a few exemplars stand for all.
    const cells = Array.from({ length: 6 }, (_, at) => ({
      count: Math.ceil((1_000 * draw()) / 2 ** at),
      share: Math.min(Math.max(0.2 + 0.1 * at * draw(), 0), 1),
    }));
    const kept = cells.flatMap(({ count, share }) =>
      Array.from({ length: 15 }, () => {
        const user = draw() < share ? "ann" : "bob";
        return exemplar({ attributes: { user }, weight: count / 15 });
      }),
    );
    const sum = cells.reduce((all, { count }) => all + count, 0);
    const truth = cells.reduce((all, { count, share }) => all + count * share, 0) / sum;
    const { lower, upper } = weightedShare(kept, ({ attributes }) => attributes["user"] === "ann");
    if (lower <= truth && truth <= upper) contained++;
  }
  expect(contained).toBeGreaterThanOrEqual(930);
  expect(contained).toBeLessThanOrEqual(985);
});
