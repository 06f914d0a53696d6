/**
 * No value is lost or added between a sender and the screen: histograms with negative values and
 * zero, of several schemes at once, and with a changing resolution, in formats of their senders.
 */

import { afterAll, beforeAll, expect, test } from "vitest";

import { parseDistribution } from "../src/lib/api";
import { colourSteps, ramp, STEPS } from "../src/lib/colour";
import { drawnBounds, isWide } from "../src/lib/distribution";
import { ROWS, binRows } from "../src/lib/raster";
import { Scale } from "../src/lib/scale";
import { explicit, exponential, INTERVAL, logLinear, sum } from "./histograms";
import { Server } from "./server";
import { Visitor, type Colour } from "./visitor";

const MINUTE = 60e3;
const end = Math.floor(Date.now() / MINUTE) * MINUTE;
const start = end - 60 * MINUTE;
const range = { from: new Date(start).toISOString(), to: new Date(end).toISOString() };

let server: Server;
let visitor: Visitor;

beforeAll(async () => {
  server = await Server.start(false);
  visitor = await Visitor.start(server);
});
afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

interface HistogramJson {
  count: number;
  above: { count: { lower: number; estimate: number; upper: number } }[];
}

interface Columns {
  total: Parameters<typeof parseDistribution>[0];
  columns: (Parameters<typeof parseDistribution>[0] & { start_ns: number })[];
}

/** End of an interval in a minute of the hour: within a column of any step. */
const minute = (of: number) => start + of * MINUTE - 5e3;

const COLOURS = ramp(false);
const NOTHING: Colour = [251, 252, 253];
/** The line of the maximum, which is always drawn. */
const LINE: Colour = [20, 32, 46];
const step = (at: number) => [...new Uint8Array(COLOURS.buffer, 4 * at, 3)] as Colour;

/** The heatmap of a metric on the screen, and the server's columns. */
async function picture(selector: string) {
  const requested = await visitor.explore({ selector, ...range, lines: "none" });
  const parameters = Object.fromEntries(requested.searchParams);
  // The page requests the indexed form of cells; here the full form.
  delete parameters["cells"];
  const response = await server.ask<Columns>("/v1/heatmap", parameters);
  const columns = response.columns.map(parseDistribution);
  const scale = Scale.around(parseDistribution(response.total).cells.map(drawnBounds));
  const screen = await visitor.cells(columns.length, ROWS);
  const row = (value: number) =>
    Math.min(Math.max(Math.floor(scale.share(value) * ROWS), 0), ROWS - 1);
  const column = (of: number) =>
    response.columns.findLastIndex((one) => one.start_ns / 1e6 < minute(of));
  return {
    columns,
    scale,
    screen,
    colour: (of: number, value: number) => screen[column(of)]![row(value)]!,
  };
}

/** Cells of the screen without the colour of their count. */
function wrong({ columns, scale, screen }: Awaited<ReturnType<typeof picture>>): string[] {
  const counts = columns.map((column) => {
    const rows = new Float64Array(ROWS);
    binRows(column, scale, rows);
    return rows;
  });
  const all = counts.flatMap((rows) => [...rows]).filter((count) => count > 0);
  const most = Math.max(...all);
  // The ramp begins at one whole value.
  const shade = colourSteps(
    "log",
    Math.max(Math.min(...all), Math.min(1, most)),
    most,
    () => new Float64Array(),
  );
  const found: string[] = [];
  counts.forEach((rows, column) => {
    const greatest = columns[column]!.max;
    const line = greatest ? scale.share(greatest.estimate) * ROWS : -ROWS;
    rows.forEach((count, row) => {
      const at = screen[column]![row]!;
      if (Math.abs(row + 0.5 - line) < 1.5 && LINE.every((part, channel) => part === at[channel]))
        return;
      // A rounding error at the edge of a step may change the step.
      const allowed =
        count > 0
          ? [
              shade.toStep(count * (1 - 1e-6)),
              shade.toStep(count),
              shade.toStep(count * (1 + 1e-6)),
            ].map(step)
          : [NOTHING];
      if (!allowed.some((one) => one.every((part, channel) => part === at[channel])))
        found.push(
          `column ${column}, row ${row}: ${count} is ${at}, not ${allowed[1] ?? allowed[0]}`,
        );
    });
  });
  return found;
}

/** The counts sent, stored, drawn, and above some limits are equal on the page and the server. */
async function holds(
  selector: string,
  sent: number,
  limits: readonly string[],
): Promise<Awaited<ReturnType<typeof picture>>> {
  const whole = await server.ask<HistogramJson>("/v1/histogram", { selector, ...range });
  expect(whole.count, "what the server counts is what was sent").toBe(sent);
  const found = await picture(selector);
  expect(sum(found.columns.map((column) => column.count)), "columns add up to what was sent").toBe(
    sent,
  );
  expect(await visitor.drawn(), "what is drawn is what was sent").toBe(sent);
  expect(wrong(found)).toEqual([]);
  for (const limit of limits) {
    await visitor.page.getByLabel("Threshold", { exact: true }).fill(limit);
    await visitor.page.keyboard.press("Enter");
    const response = await server.ask<HistogramJson>("/v1/histogram", {
      selector,
      ...range,
      above: limit,
    });
    const { lower, estimate, upper } = response.above[0]!.count;
    const number = (count: number) => count.toLocaleString("en-GB");
    // Bounds that differ by more than a factor of two are shown instead of the estimate.
    const isRange = isWide(lower, upper);
    const above = isRange ? `${number(lower)} to ${number(upper)}` : number(estimate);
    const expected = `${above} of ${number(sent)} above`;
    await expect
      .poll(() => visitor.page.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
      .toContain(expected);
  }
  return found;
}

test("default bounds of OpenTelemetry with seconds: an amber range, with a remedy", async () => {
  // They are meant for milliseconds: nearly all values in seconds are in the first bucket.
  const explicitBounds = [0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1e3, 2_500, 5e3, 7_500, 1e4];
  const point = {
    startTimeUnixNano: `${minute(30) - MINUTE}000000`,
    timeUnixNano: `${minute(30)}000000`,
    count: "1000",
    sum: 47,
    min: 0.02,
    max: 0.9,
    explicitBounds,
    bucketCounts: explicitBounds.map((_, at) => (at === 1 ? "1000" : "0")).concat("0"),
  };
  const metric = {
    name: "defaults",
    unit: "s",
    histogram: { aggregationTemporality: 2, dataPoints: [point] },
  };
  await server.post(
    "/v1/metrics",
    JSON.stringify({ resourceMetrics: [{ scopeMetrics: [{ metrics: [metric] }] }] }),
  );
  await visitor.explore({ selector: "defaults", threshold: "250ms", ...range });
  const headline = visitor.page.getByTestId("above-threshold");
  const text = () => headline.innerText();
  // The mean is 47 ms: at most 117 values can be above 250 ms.
  await expect.poll(text, { timeout: 20_000 }).toMatch(/^\d to 1[12]\d\s+of 1,000 above 250 ms/);
  expect(await text()).toContain("250 ms lies inside a bucket of 1,000 values");
  expect(await text()).toContain("the range follows from their sum, minimum and maximum");
  expect(await text()).toMatch(/DEFAULT_HISTOGRAM_AGGREGATION=\s*base2_exponential/);
  const [background, amber] = await visitor.backgrounds(headline, "--warn-2");
  expect(background).toBe(amber);
});

test("negative values and zero", async () => {
  const points = Array.from({ length: 60 }, (_, at) => ({
    end: minute(at + 1),
    scale: 8,
    zero: at === 30 ? 1_000 : 3,
    negative: { 100: 5 + at, 300: at === 30 ? 31 : 2 },
    positive: { [-200]: 7, 0: at === 30 ? 1 : 4, 500: 11 * at },
  }));
  await server.post("/v1/metrics", exponential("signs", {}, points));
  const sent = sum(
    points.flatMap((one) => [
      one.zero,
      ...Object.values(one.negative),
      ...Object.values(one.positive),
    ]),
  );
  const found = await holds("signs", sent, ["0", "-1.5", "1"]);
  // Without the page's arithmetic: 1, 31 and 1,000 values on a logarithmic ramp up to 1,000.
  const value = (place: number) => 2 ** ((place + 0.5) / 2 ** 8);
  expect(found.colour(31, 0)).toEqual(step(STEPS - 1));
  expect(found.colour(31, value(0))).toEqual(step(0));
  expect(found.colour(31, -value(300))).toEqual(
    step(Math.floor((Math.log(31) / Math.log(1_000)) * (STEPS - 1))),
  );
  expect(found.colour(31, value(300))).toEqual(NOTHING);
});

test("zero as wide as its threshold, and nothing but negative values", async () => {
  const body = exponential("around_zero", {}, [
    { end: minute(10), scale: 3, zero: 17, negative: { 0: 4 }, positive: { 0: 2 } },
  ]);
  await server.post(
    "/v1/metrics",
    body.replace('"zeroCount":"17"', '"zeroCount":"17","zeroThreshold":0.25'),
  );
  await holds("around_zero", 23, ["0", "0.2", "-3"]);
  await server.post(
    "/v1/metrics",
    exponential("below_zero", {}, [{ end: minute(10), scale: 3, negative: { 0: 4, 9: 6 } }]),
  );
  await holds("below_zero", 10, ["-1.1", "0"]);
});

test("several schemes at once", async () => {
  const ends = Array.from({ length: 60 }, (_, at) => minute(at + 1));
  const fine = ends.map((end, at) => ({
    end,
    scale: 5,
    positive: { [-40 + at]: 9, [at]: 30, 200: 1 },
  }));
  const bounds = [-1, 0, 0.1, 0.25, 0.5, 1, 2.5, 10];
  const coarse = ends.map((end, at) => ({ end, bounds, counts: [1, 2, 3, at, 40, 5, 60, 7, 8] }));
  await server.post("/v1/metrics", exponential("schemes", { sender: "exponential" }, fine));
  await server.post("/v1/metrics", explicit("schemes", { sender: "explicit" }, coarse));
  let circonus = 0;
  for (const end of ends.slice(0, 20)) {
    const bins = [
      [-17, -1, 6],
      [0, 0, 3],
      [10, 0, 100],
      [99, 1, 2],
    ] as const;
    await server.post("/v1/httptrap", logLinear("schemes", end, bins));
    circonus += 111;
  }
  const first = sum(fine.flatMap((one) => Object.values(one.positive)));
  const second = sum(coarse.flatMap((one) => one.counts));
  await holds('schemes{sender="exponential"}', first, ["0.5"]);
  await holds('schemes{sender="explicit"}', second, ["0.3", "-1"]);
  await holds('schemes{sender=""}', circonus, ["-0.1", "1"]);
  await holds("schemes", first + second + circonus, ["0.3", "2.5", "-0.5"]);
});

test("a resolution that changes in the middle of a series", async () => {
  const scales = [8, 8, 8, 5, 3, 3, 0, -2, 3, 8];
  const points = Array.from({ length: 60 }, (_, at) => {
    const scale = scales[Math.floor(at / 6)]!;
    // The same values of 3 and of 0.02, whatever the scale is.
    const place = (value: number) => Math.ceil(Math.log2(value) * 2 ** scale) - 1;
    return {
      end: minute(at + 1),
      scale,
      zero: 1,
      positive: { [place(3)]: 50 + at, [place(0.02)]: 4 },
      negative: { [place(3)]: 2 },
    };
  });
  await server.post("/v1/metrics", exponential("scales", {}, points));
  const sent = sum(
    points.flatMap((one) => [
      one.zero,
      ...Object.values(one.positive),
      ...Object.values(one.negative),
    ]),
  );
  await holds("scales", sent, ["1", "0", "-1"]);
  // Within one interval, too: columns that hold both.
  const both = [8, 3].flatMap((scale) => [
    { end: minute(20) - (scale === 8 ? INTERVAL / 2 : 0), scale, positive: { 1: 500 } },
  ]);
  await server.post("/v1/metrics", exponential("both", {}, both));
  await holds("both", 1_000, ["1.01"]);
});

test("more than a screen can tell apart is still counted", async () => {
  // Beyond 2^24 a number of 32 bits no longer knows the ones.
  const points = Array.from({ length: 60 }, (_, at) => ({
    end: minute(at + 1),
    scale: 0,
    zero: 2 ** 40 + 1,
    positive: { 0: 2 ** 31 + at, 5: 1, 7: 333_333_333 },
  }));
  await server.post("/v1/metrics", exponential("many", {}, points));
  await holds("many", sum(points.flatMap((one) => [one.zero, ...Object.values(one.positive)])), [
    "3",
  ]);
});

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
