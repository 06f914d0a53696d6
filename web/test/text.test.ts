import { expect, test } from "vitest";

import { fixRange, read, write } from "../src/lib/link";
import { describeGaps } from "../src/lib/gaps";
import * as percentiles from "../src/lib/percentiles";
import { locateError, formatLabels } from "../src/lib/query";
import * as time from "../src/lib/time";
import {
  formatBracket,
  formatCellCount,
  formatCount,
  formatFrequency,
  formatInput,
  formatInUnit,
  isNumber,
  parseThreshold,
  unitsOf,
  parseValue,
  formatShare,
  formatValue,
} from "../src/lib/unit";
import links from "../../testdata/dashboards/links.json";

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
  [0.00123, "", "0.00123"],
  [-0.0000042, "B", "-0.0000042 B"],
  [0.25, "ns", "0.25 ns"],
  [1e300, "B", "1e+285 PB"],
  [Infinity, "ns", "no upper bound"],
  [250_000_000, "10*-9", "0.25"],
  [12_500_000_000, "10*-9.%", "12.5 %"],
])("%d %s is %s", (number, unit, expected) => expect(formatValue(number, unit)).toBe(expected));

test.each([
  ["1.5s", "ns", 1.5e9],
  ["250 ms", "ns", 250e6],
  ["3us", "ns", 3e3],
  ["1e6", "ns", 1e6],
  ["2", "B", 2],
  ["2 ms", "B", null],
  ["12.4MB", "B", 12.4e6],
  ["1.23k", "", 1230],
  ["3 requests/s", "requests/s", 3],
  ["5\u03bcs", "ns", 5e3],
  ["1e999", "ns", null],
  ["fast", "ns", null],
  // A product of doubles would be 0.7000000000000001, inside the bucket above the bound 0.7.
  ["700ms", "s", 0.7],
  ["0.1us", "s", 1e-7],
  ["35e-1ms", "s", 0.0035],
  ["90min", "h", 1.5],
  ["1.1kB", "B", 1100],
])("%s in %s is %d", (text, unit, expected) => expect(parseValue(text, unit)).toBe(expected));

// The legend of a rate had "2" for 2.4 values, and "0.025" without a word for parts of a value.
test.each([
  [2.4, false, "2.4"],
  [0.983, false, "0.983"],
  [1_204, true, "1,204"],
  [0.025, true, "1/40"],
  [2.4, true, "2"],
  [0, true, "0"],
])("a cell with %d values, whole %s, has %s in the legend", (count, isWhole, expected) =>
  expect(formatCellCount(count, isWhole)).toBe(expected),
);

test.each([
  [1.53e6, "ns", "1.53ms"],
  [1.53e3, "ns", "1.53us"],
  [12_400_000, "B", "12.4MB"],
  [1_230, "", "1.23k"],
  [0.00123, "", "0.00123"],
  [-2e6, "ns", "-2ms"],
  [0, "ns", "0s"],
  [1e-9, "ns", "1e-9ns"],
  [1e300, "ns", "1.16e+286d"],
])("a threshold dragged to %d %s is read back from %s", (number, unit, expected) => {
  const text = formatInput(number, unit);
  if (parseValue(expected, unit) === number) expect(text).toBe(expected);
  expect(Math.abs(parseValue(text, unit)! - number)).toBeLessThanOrEqual(Math.abs(number) * 1e-9);
});

// The field showed `611382492`, cut off, from `611382492.9170599ns` in the address.
test.each([
  [611382492.9170599, "ns", "611ms"],
  [0.6113824929170599, "s", "611ms"],
  [61_382_492_917.06, "ns", "61.4s"],
  [250e6, "ns", "250ms"],
  [1.234e9, "ns", "1.234s"],
  [12_345_678.9, "B", "12.3MB"],
  [0.0123456789, "", "0.0123"],
])("a threshold of %d %s is %s in field and address", (number, unit, expected) =>
  expect(formatInput(number, unit)).toBe(expected),
);

test("a count above 2^53 is marked as inexact", () => {
  expect(formatCount(2 ** 53 - 1)).toBe("9,007,199,254,740,991");
  expect(formatCount(2 ** 62)).toBe("about 4.612e+18");
});

test("a bracket shows its bounds if they differ in three digits", () => {
  expect(formatBracket({ lower: 1e6, estimate: 1.5e6, upper: 2e6 }, "ns")).toBe("1.5 ms (1–2)");
  expect(formatBracket({ lower: 1.5001e6, estimate: 1.5002e6, upper: 1.5003e6 }, "ns")).toBe(
    "1.5 ms",
  );
  expect(formatBracket({ lower: 9e5, estimate: 1.5e6, upper: Infinity }, "ns")).toBe(
    "1.5 ms (900 µs to no upper bound)",
  );
  expect(formatBracket(null, "ns")).toBe("no data");
});

test.each([
  [0, "0 %"],
  [1e-7, "0.00001 %"],
  [0.00004, "0.004 %"],
  [0.0123, "1.23 %"],
  [0.07, "7 %"],
  [-0.25, "-25 %"],
  [0.9999999, "99.99999 %"],
  [0.0313, "3.13 %"],
  [0.99972, "99.972 %"],
  [1, "100 %"],
])("%d is %s", (share, expected) => expect(formatShare(share)).toBe(expected));

// A chart of a share, and an alert, showed 0.0123.
test("values of shares are in percent, and a percentage is read as one", () => {
  const unit = "share, 0 to 1";
  expect(formatValue(0.0123, unit)).toBe("1.23 %");
  expect(formatValue(0.00004, unit)).toBe("0.004 %");
  expect(formatInUnit(0.5, 1, unit)).toBe("50 %");
  expect(formatValue(12.5, "percent")).toBe("12.5 %");
  expect(formatInput(0.0123, unit)).toBe("1.23%");
  expect(parseValue("1.23%", unit)).toBeCloseTo(0.0123, 12);
  expect(parseValue("12.5 %", "percent")).toBe(12.5);
});

test("a route and its address are equivalent", () => {
  const route = {
    view: "explore" as const,
    settings: { selector: 'a{b="c d",e="100%"}', from: "-6h", threshold: "1.5s" },
  };
  expect(read(write(route))).toEqual(route);
  // A name that was typed stays, also if it is one of an earlier version.
  const typed = { view: "explore" as const, settings: { selector: "check_up" } };
  expect(write(typed)).toBe("#/explore?selector=check_up&v=2");
  expect(read(write(typed))).toEqual(typed);
  expect(write({ view: "status", settings: {} })).toBe("#/status");
  expect(read("")).toEqual({ view: "overview", settings: {} });
  // Settings without a view are of a time when Explore was the first page.
  expect(read("#/?selector=took").view).toBe("explore");
  // The page shows the default view for an unknown name.
  expect(read("#/none?x=1").view).toBe("none");
  expect(read('#/explore?selector=a{b=~"c?d?"}&from=-1h').settings).toEqual({
    selector: 'a{b=~"c?d?"}',
    from: "-1h",
  });
  expect(read("#/explore?__proto__=x&selector=%E0%A4%A").settings["from"]).toBeUndefined();
});

test.each(links)(
  "a link of an earlier version shows the same: $link",
  ({ link, view, settings }) => {
    expect(read(link)).toEqual({ view, settings });
  },
);

test.each([
  ["-6h", 100e6 - 6 * 3600e3],
  ["now", 100e6],
  ["1970-01-02T00:00:00Z", 86_400e3],
  ["soon", null],
  ["-1h30m", 100e6 - 5_400e3],
  ["-90min", 100e6 - 5_400e3],
  ["1970-01-02", 86_400e3],
  ["1970-01-02 00:30", 88_200e3],
  ["1970-01-02T02:00+02:00", 86_400e3],
  ["5", null],
  ["foo 1", null],
  ["-99999999999w", null],
  ["9999-01-01", null],
  ["1970-13-01", null],
])("the time %s", (text, expected) => expect(time.parseTime(text, 100e6)).toBe(expected));

test("durations have one format, which can be typed", () => {
  for (const [ms, text] of [
    [0, "0 s"],
    [250, "250 ms"],
    [59_400, "59 s"],
    [90e3, "1 min 30 s"],
    [5_400e3, "1 h 30 min"],
    [5_405e3, "1 h 30 min"],
    [86_460e3, "1 d"],
    [90_000e3, "1 d 1 h"],
    [30 * 86_400e3, "30 d"],
  ] as const) {
    expect(time.formatDuration(ms)).toBe(text);
  }
  for (const text of ["-1 h 30 min", "-1h 30m", "-1h30m", "-1h30min", "-90 min", "-1.5 h"]) {
    expect(time.parseTime(text, 5_400e3)).toBe(0);
  }
  expect(time.parseTime("-1 h 30", 0)).toBeNull();
});

test("a time without an offset is UTC in every time zone", () =>
  inZone("America/New_York", () => {
    expect(time.parseTime("1970-01-02T00:00", 0)).toBe(86_400e3);
  }));

test("an invalid range is an error, and the limits of time are kept", () => {
  expect(() => time.requireRange({ from: "now", to: "-1h" }, 0)).toThrow(
    /it ends before it starts; use times such as/,
  );
  const ends: [number, number] = [-9.2e12, 9.2e12];
  expect(time.resolveRange(time.shiftRange(ends, 0.5), 0)).not.toBeNull();
  expect(time.resolveRange(time.zoomOut(ends, 0), 0)).not.toBeNull();
  const later: [number, number] = [4e12, 4.1e12];
  expect(time.resolveRange(time.zoomOut(later, 1.8e12), 1.8e12)).toEqual([3.95e12, 4.1e12]);
});

test.each(["2026-03-27T23:00Z", "2026-10-22T22:00Z"])(
  "ticks are at local midnight across a change of the UTC offset: %s",
  (from) =>
    inZone("Europe/Berlin", () => {
      const start = Date.parse(from);
      const ticks = time.timeTicks(start, start + 6 * 86_400e3, 7);
      expect(ticks.length).toBeGreaterThanOrEqual(6);
      expect(ticks.map((at) => new Date(at).getHours())).toEqual(ticks.map(() => 0));
      expect(new Set(ticks.map((at) => time.formatTick(at, 6 * 86_400e3))).size).toBe(ticks.length);
    }),
);

// The axis of a budget said 11-21, 11-21, 11-22, 11-22.
test("ticks of half days have labels of their own", () =>
  inZone("UTC", () => {
    const start = Date.parse("2026-11-20T18:00Z");
    const ticks = time.timeTicks(start, start + 7 * 86_400e3, 14);
    const labels = ticks.map((at) => time.formatTick(at, 7 * 86_400e3));
    expect(labels.slice(0, 3)).toEqual(["11-21", "11-21 12:00", "11-22"]);
    expect(new Set(labels).size).toBe(labels.length);
  }));

// An axis of a day of last week said 14:00 twice, and nothing of the day.
test("ticks within a day have their date, unless all are of today", () =>
  inZone("UTC", () => {
    const start = Date.parse("2026-11-20T14:00Z");
    const labels = (now: number, span = 86_400e3) =>
      time.formatTicks(time.timeTicks(start, start + span, 4), span, now);
    const later = Date.parse("2026-11-27T09:00Z");
    const expected = ["11-20 18:00", "11-21 00:00", "06:00", "12:00"];
    expect(labels(later)).toEqual(expected);
    expect(labels(Date.parse("2026-11-20T20:00Z"))).toEqual(expected);
    const hour = labels(Date.parse("2026-11-20T15:00Z"), 3_600e3);
    expect(hour[0]).toBe("14:00");
    expect(labels(later, 3_600e3)[0]).toBe("11-20 14:00");
    expect(time.formatTimeToday(start, 60e3, later)).toBe("11-20 14:00:00");
    expect(time.formatTimeToday(start, 60e3, start + 60e3)).toBe("14:00:00");
    // Of two years.
    expect(time.formatTick(start, 400 * 86_400e3)).toBe("2026-11-20 14:00");
    // A week has the date at each tick.
    const week = time.labelledTicks(start, start + 7 * 86_400e3, 14).map(({ text }) => text);
    expect(new Set(week).size).toBe(week.length);
    expect(week.every((text) => /^11-\d\d( \d\d:\d\d)?$/.test(text))).toBe(true);
  }));

function inZone(zone: string, work: () => void): void {
  const before = process.env["TZ"];
  process.env["TZ"] = zone;
  try {
    work();
  } finally {
    if (before === undefined) delete process.env["TZ"];
    else process.env["TZ"] = before;
  }
}

test("ticks are at most about as many as requested", () => {
  for (const span of [50, 7e3, 600e3, 86_400e3, 40 * 86_400e3, 4_000 * 86_400e3]) {
    const ticks = time.timeTicks(1e12, 1e12 + span, 6);
    expect(ticks.length).toBeGreaterThan(0);
    expect(ticks.length).toBeLessThanOrEqual(7);
  }
});

test("a query is not evaluated after now, when its newest values have not arrived", () => {
  expect(time.alignQueryRange(10, 95, 20, 95)).toEqual([0, 80]);
  expect(time.alignQueryRange(10, 100, 20, 100)).toEqual([0, 100]);
  // A range that ended long ago has its last step whole.
  expect(time.alignQueryRange(10, 95, 20, 1_000)).toEqual([0, 100]);
  expect(time.alignQueryRange(90, 95, 20, 95)).toEqual([80, 80]);
});

test("a session of many requests sees high percentiles", () => {
  expect(percentiles.sessionQuantile(1, 0.5)).toBeCloseTo(0.5);
  expect(percentiles.sessionQuantile(200, 0.5)).toBeCloseTo(0.99654, 5);
  expect(percentiles.affectedShare(200, 0.99)).toBeCloseTo(0.866, 3);
  for (const many of [1e16, 2e18])
    expect(percentiles.spectrumQuantiles(many).every((q) => q >= 0 && q < 1)).toBe(true);
  expect(percentiles.percentileName(0.999)).toBe("p99.9");
  expect(percentiles.percentileName(0.5)).toBe("p50");
});

test("an error of a query has its position", () => {
  expect(locateError("2:5: expected a number", "sum(\n  x y)")).toEqual({
    line: "  x y)",
    column: 4,
    message: "expected a number",
  });
  expect(locateError("too many at once", "x")).toBeNull();
});

test("labels are formatted as in a selector", () => {
  expect(formatLabels({ __name__: "a", b: "c" })).toBe('a{b="c"}');
  expect(formatLabels({})).toBe("all");
});

test("a gap is described once, though it overlaps many columns", () => {
  const gap = { start: 0, end: 10, lost: 1_204 as number | null, reason: "the journal was full" };
  expect(describeGaps([])).toBe(null);
  expect(describeGaps([gap, { ...gap }])).toBe(
    "1,204 samples or records missing: the journal was full",
  );
  expect(describeGaps([gap, { ...gap, start: 5, lost: null, reason: "restarted" }])).toBe(
    "1,204 samples or records missing, 1 gap of unknown size: the journal was full; restarted",
  );
});

test("the last quarter of a live range is live", () => {
  expect(time.lastQuarter({ from: "-1h", to: "now" }, 1e12)).toEqual({ from: "-900s", to: "now" });
  expect(time.lastQuarter({ from: "2026-11-22T04:00Z", to: "2026-11-22T08:00Z" }, 1e12)).toEqual({
    from: "2026-11-22T07:00Z",
    to: "2026-11-22T08:00Z",
  });
  expect(time.lastQuarter({ from: "-1s", to: "now" }, 1e12)).toBe(null);
  expect(time.lastQuarter({ from: "yesterday", to: "now" }, 1e12)).toBe(null);
});

test.each([
  ["0.25", "s", null],
  ["0.25", "", 0.25],
  ["0.25ms", "s", 0.00025],
  ["0", "s", 0],
  ["1e3", "B", null],
])("threshold %s of values in %j is %d", (text, unit, expected) => {
  expect(parseThreshold(text, unit)).toBe(expected);
});

test("a bare number asks for its unit, that of the values first", () => {
  expect(unitsOf("s")).toEqual(["s", "ms", "us"]);
  expect(unitsOf("ms")).toEqual(["ms", "s", "us"]);
  // "250 what?" offered 250 ns first.
  expect(unitsOf("ns")).toEqual(["ms", "s", "us", "ns"]);
  expect(unitsOf("B")).toEqual(["B"]);
  expect([isNumber("0.25"), isNumber(" 3 "), isNumber(""), isNumber("3s")]).toEqual([
    true,
    true,
    false,
    false,
  ]);
});

test("a rate of 0.983 values per second is not rounded to 1", () => {
  expect(formatFrequency(0.9827, false)).toBe("0.983");
  expect(formatFrequency(1_204, true)).toBe("1,204");
});

// A link to an instant was "not a valid range".
test("a range from an instant to the same instant is the minute before it", () => {
  const instant = "2026-11-22T05:00Z";
  const at = Date.parse(instant);
  expect(time.requireRange({ from: instant, to: instant }, 0)).toEqual([at - 60e3, at]);
  expect(time.requireRange({ from: "now", to: "now" }, at)).toEqual([at - 60e3, at]);
  expect(() => time.requireRange({ from: "soon", to: "now" }, 0)).toThrow(/not a valid range/);
});

// A link that said -15m was opened an hour later, and showed another quarter of an hour.
test("a copied link has the times as they were, a typed range as it was typed", () => {
  const now = Date.parse("2026-11-26T12:00:03Z");
  const settings = { selector: "latency", from: "-15m", to: "now" };
  const range = { from: "-15m", to: "now" };
  const { view, settings: fixed } = fixRange({ view: "explore", settings }, range, now);
  expect([view, fixed]).toEqual([
    "explore",
    { selector: "latency", from: "2026-11-26T11:45Z", to: "2026-11-26T12:00:10Z" },
  ]);
  // The default range of a view is not in its address.
  expect(fixRange({ view: "explore", settings: {} }, { from: "-1h", to: "now" }, now)).toEqual({
    view: "explore",
    settings: { from: "2026-11-26T11:00Z", to: "2026-11-26T12:00:10Z" },
  });
  const typed = { from: "2026-11-26T11:00:01.5Z", to: "2026-11-26T11:00:02Z" };
  expect(fixRange({ view: "explore", settings: typed }, typed, now).settings).toEqual({
    from: "2026-11-26T11:00:01.500Z",
    to: "2026-11-26T11:00:02Z",
  });
});

test("a copied comparison has both ranges fixed", () => {
  const now = Date.parse("2026-11-26T12:00Z");
  const settings = { a: "x", from_b: "-2h", to_b: "-1h" };
  const fixed = fixRange({ view: "compare", settings }, { from: "-1h", to: "now" }, now);
  expect(fixed.settings).toEqual({
    a: "x",
    from: "2026-11-26T11:00Z",
    to: "2026-11-26T12:00Z",
    from_b: "2026-11-26T10:00Z",
    to_b: "2026-11-26T11:00Z",
  });
});
