import { expect, test } from "vitest";

import { linearTicks, Scale } from "../src/lib/scale";

test.each([
  ["positive", 1e3, 1e9],
  ["from zero", 0, 1e6],
  ["on both sides", -1e4, 1e6],
  ["negative", -1e6, -1e2],
])("values go to the axis and back: %s", (_, low, high) => {
  const scale = Scale.around([
    [low, high],
    [low + (high - low) / 1e3, high],
  ]);
  let before = -Infinity;
  for (let step = 0; step <= 100; step++) {
    const value = scale.value(step / 100);
    expect(scale.share(value)).toBeCloseTo(step / 100, 9);
    expect(value).toBeGreaterThan(before);
    before = value;
  }
  expect(scale.share(low)).toBeGreaterThanOrEqual(0);
  expect(scale.share(high)).toBeLessThanOrEqual(1);
});

test("a decade is as high as any other", () => {
  const scale = Scale.around([[1e3, 1e6]]);
  const height = (low: number) => scale.share(low * 10) - scale.share(low);
  expect(height(1e3)).toBeCloseTo(height(1e5), 9);
});

test.each([
  [[1e3, 1e6], 12, [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6]],
  [[1e3, 1e6], 5, [1e3, 1e4, 1e5, 1e6]],
  [[-1e2, 1e2], 3, [0]],
])("ticks of %j, at most %d", ([low, high], most, expected) => {
  const ticks = Scale.around([[low!, high!]]).ticks(most);
  for (const tick of expected) expect(ticks).toContain(tick);
});

test("beside zero there is no tick, and none on a side without values", () => {
  const ticks = Scale.around([
    [0, 0],
    [0.1, 1e6],
  ]).ticks(9);
  expect(ticks[0]).toBe(0);
  expect(ticks[1]).toBeGreaterThan(0.15);
});

test.each([
  ["from zero to the greatest", [0, Number.MAX_VALUE]],
  ["on both sides", [-Number.MAX_VALUE, Number.MAX_VALUE]],
  ["from the least to the greatest", [Number.MIN_VALUE, Number.MAX_VALUE]],
  ["the least", [Number.MIN_VALUE, Number.MIN_VALUE]],
])(
  "the greatest and the least numbers have a place, and ticks come to an end: %s",
  (_, [low, high]) => {
    const scale = Scale.around([[low!, high!]]);
    for (const end of [low!, high!]) {
      expect(scale.share(end)).toBeGreaterThanOrEqual(0);
      expect(scale.share(end)).toBeLessThanOrEqual(1);
    }
    expect([scale.low, scale.high, scale.value(0.5)].every(Number.isFinite)).toBe(true);
    expect(scale.ticks(8).length).toBeLessThan(30);
  },
);

test("what is nothing, one value, or all zero has a scale", () => {
  for (const ranges of [[], [[0, 0]], [[5, 5]]] as [number, number][][]) {
    const scale = Scale.around(ranges);
    expect(scale.share(5)).not.toBeNaN();
    expect(scale.ticks(8).length).toBeLessThan(30);
  }
});

test.each([
  [0, 3.6, 6, [0, 1, 2, 3]],
  [0, 0.101, 6, [0, 0.02, 0.04, 0.06, 0.08, 0.1]],
  [-5, 5, 5, [-4, -2, 0, 2, 4]],
  [0, 0.3, 3, [0, 0.1, 0.2, 0.3]],
  [0, 3.6e9, 6, [0, 1e9, 2e9, 3e9]],
  [5, 5, 6, [5]],
])("ticks from %d to %d, about %d, are round", (low, high, max, expected) => {
  expect(linearTicks(low, high, max)).toEqual(expected);
});
