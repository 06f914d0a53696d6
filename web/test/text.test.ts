import { expect, test } from "vitest";

import { read, write } from "../src/lib/link";
import { missing } from "../src/lib/missing";
import * as nines from "../src/lib/nines";
import { mistake, named } from "../src/lib/question";
import * as time from "../src/lib/time";
import { bracket, parse, percent, value } from "../src/lib/unit";

test.each([
  [0, "ns", "0 s"],
  [17, "ns", "17 ns"],
  [1530, "ns", "1.53 µs"],
  [999_950, "ns", "1 ms"],
  [1.5e9, "ns", "1.5 s"],
  [90e9, "ns", "1.5 min"],
  [-2e6, "ns", "-2 ms"],
  [0.25, "s", "250 ms"],
  [12_400_000, "B", "12.4 MB"],
  [1_234, "", "1.23k"],
  [Infinity, "ns", "no upper bound"],
])("%d %s is %s", (number, unit, expected) => expect(value(number, unit)).toBe(expected));

test.each([
  ["1.5s", "ns", 1.5e9],
  ["250 ms", "ns", 250e6],
  ["3us", "ns", 3e3],
  ["1e6", "ns", 1e6],
  ["2", "B", 2],
  ["2 ms", "B", null],
  ["fast", "ns", null],
])("%s in %s is %d", (text, unit, expected) => expect(parse(text, unit)).toBe(expected));

test("a bracket tells how far it may be off, if that shows", () => {
  expect(bracket({ lower: 1e6, estimate: 1.5e6, upper: 2e6 }, "ns")).toBe("1.5 ms (1–2)");
  expect(bracket({ lower: 1.5001e6, estimate: 1.5002e6, upper: 1.5003e6 }, "ns")).toBe("1.5 ms");
  expect(bracket({ lower: 9e5, estimate: 1.5e6, upper: Infinity }, "ns")).toBe("1.5 ms (900 µs to no upper bound)");
  expect(bracket(null, "ns")).toBe("no data");
});

test.each([
  [0, "0 %"],
  [1e-7, "< 0.001 %"],
  [0.0313, "3.1 %"],
  [0.99972, "99.972 %"],
  [1, "100 %"],
])("%d is %s", (share, expected) => expect(percent(share)).toBe(expected));

test("an address is a place, and a place an address", () => {
  const place = { view: "explore" as const, settings: { selector: 'a{b="c d",e="100%"}', from: "-6h", threshold: "1.5s" } };
  expect(read(write(place))).toEqual(place);
  expect(read("")).toEqual({ view: "explore", settings: {} });
  expect(read("#/none?x=1").view).toBe("explore");
});

test.each([
  ["-6h", 100e6 - 6 * 3600e3],
  ["now", 100e6],
  ["1970-01-02T00:00:00Z", 86_400e3],
  ["soon", null],
])("the moment %s", (text, expected) => expect(time.moment(text, 100e6)).toBe(expected));

test("ticks are round, and no more than wanted", () => {
  for (const span of [50, 7e3, 600e3, 86_400e3, 40 * 86_400e3, 4_000 * 86_400e3]) {
    const ticks = time.ticks(1e12, 1e12 + span, 6);
    expect(ticks.length).toBeGreaterThan(0);
    expect(ticks.length).toBeLessThanOrEqual(7);
  }
});

test("a visit of many requests meets high percentiles", () => {
  expect(nines.reached(1, 0.5)).toBeCloseTo(0.5);
  expect(nines.reached(200, 0.5)).toBeCloseTo(0.99654, 5);
  expect(nines.harmed(200, 0.99)).toBeCloseTo(0.866, 3);
  expect(nines.percentile(0.999)).toBe("p99.9");
  expect(nines.percentile(0.5)).toBe("p50");
});

test("a mistake is shown where it is", () => {
  expect(mistake("2:5: expected a number", "sum(\n  x y)")).toEqual({ line: "  x y)", column: 4, what: "expected a number" });
  expect(mistake("too many at once", "x")).toBeNull();
});

test("labels are written as in a selector", () => {
  expect(named({ __name__: "a", b: "c" })).toBe('a{b="c"}');
  expect(named({})).toBe("all");
});

test("what is missing is said once, though it touches many columns", () => {
  const gap = { start: 0, end: 10, lost: 1_204 as number | null, reason: "the journal was full" };
  expect(missing([])).toBe(null);
  expect(missing([gap, { ...gap }])).toBe("1,204 values: the journal was full");
  expect(missing([gap, { ...gap, start: 5, lost: null, reason: "it was restarted" }])).toBe(
    "1,204 values and an unknown number in 1 stretch: the journal was full; it was restarted",
  );
});

test("a quarter of a stretch goes on if the stretch does", () => {
  expect(time.quarter({ from: "-1h", to: "now" })).toEqual({ from: "-900s", to: "now" });
  expect(time.quarter({ from: "2026-11-22T04:00Z", to: "2026-11-22T08:00Z" })).toEqual({ from: "2026-11-22T07:00Z", to: "2026-11-22T08:00Z" });
  expect(time.quarter({ from: "-1s", to: "now" })).toBe(null);
  expect(time.quarter({ from: "yesterday", to: "now" })).toBe(null);
});
