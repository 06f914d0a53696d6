/** The page on a real server with known data, in a browser. */

import { readFileSync } from "node:fs";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { ramp, STEPS } from "../src/lib/colour";
import { ROWS } from "../src/lib/raster";
import { Scale } from "../src/lib/scale";
import { formatValue, parseValue } from "../src/lib/unit";
import { Server } from "./server";
import { shop } from "./shop";
import { traffic } from "./traffic";
import { Visitor } from "./visitor";

const HOUR = 3_600e3;

let server: Server;
let visitor: Visitor;
let page: Page;
const end = Math.floor(Date.now() / 60e3) * 60e3;
const range = { from: new Date(end - 6 * HOUR).toISOString(), to: new Date(end).toISOString() };

beforeAll(async () => {
  server = await Server.start(false);
  await server.send("latency", traffic({ end, hours: 6, interval: 10e3, requests: 12 }));
  await server.post(
    "/v1/annotations",
    JSON.stringify({ text: "deployed 1.5", time: new Date(end - 3 * HOUR).toISOString() }),
  );
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const open = (view: string, settings: Record<string, string>) => visitor.open(view, settings);

async function explore(settings: Record<string, string> = {}): Promise<void> {
  await open("explore", { selector: "latency", ...range, ...settings });
  await page.locator(".heatmap[data-drawn]").waitFor();
}

interface HistogramJson {
  count: number;
  above: { count: { estimate: number } }[];
}

test("all that the server counts is drawn", async () => {
  await explore();
  const response = await server.ask<HistogramJson>("/v1/histogram", {
    selector: "latency",
    ...range,
  });
  expect(response.count).toBeGreaterThan(50_000);
  const drawn = Number(await page.locator(".heatmap").getAttribute("data-drawn"));
  expect(drawn).toBe(response.count);
});

test("the threshold is dragged, and the page says what the server says", async () => {
  await explore({ threshold: "100ms" });
  const line = page.locator(".threshold");
  const box = (await line.boundingBox())!;
  const over = (await page.locator(".heatmap .u-over").boundingBox())!;
  await page.mouse.move(over.x + over.width / 2, box.y);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width / 2, box.y - 60, { steps: 8 });
  await page.mouse.up();
  await expect.poll(() => page.url()).not.toContain("threshold=100ms");
  // The rest with a typed, round number.
  await page.getByLabel("Threshold", { exact: true }).fill("1.5s");
  await page.keyboard.press("Enter");
  const response = await server.ask<HistogramJson>("/v1/histogram", {
    selector: "latency",
    ...range,
    above: "1.5s",
  });
  const above = response.above[0]!.count.estimate;
  expect(above).toBeGreaterThan(50);
  await expect
    .poll(() => page.getByTestId("above-threshold").innerText())
    .toContain(
      `${above.toLocaleString("en-GB")} of ${response.count.toLocaleString("en-GB")} above 1.5 s`,
    );
  await visitor.screenshot("explore");
});

test("a stall of a web server appears live, with the counts of the server", async () => {
  await server.record("shop", [3]);
  await open("explore", { selector: "shop", from: "-15m", to: "now", threshold: "200ms" });
  await page.locator(".heatmap[data-drawn]").waitFor();
  const drawn = async () => Number(await page.locator(".heatmap").getAttribute("data-drawn"));
  const before = await drawn();
  let sent = 0;
  await shop({ length: 3_000, every: 10, stallAt: 500, stall: 2_200 }, (latencies) => {
    sent += latencies.length;
    return server.record("shop", latencies);
  });
  expect(sent).toBe(300);
  // Without input, the page appends new data.
  await expect.poll(drawn, { timeout: 20_000 }).toBe(before + sent);
  // Drag the line to 1.5 s, to the nearest pixel.
  const line = page.locator(".threshold");
  const box = (await line.boundingBox())!;
  const over = (await page.locator(".heatmap .u-over").boundingBox())!;
  const shown = async () => parseValue((await line.getAttribute("data-label")) ?? "", "s")!;
  let y = box.y + 1;
  await page.mouse.move(over.x + over.width / 2, y);
  await page.mouse.down();
  while ((await shown()) < 1.49 && y > over.y) await page.mouse.move(over.x + over.width / 2, --y);
  await page.mouse.up();
  await expect.poll(() => page.url()).not.toContain("threshold=200ms");
  const threshold = new URLSearchParams(page.url().split("?")[1]).get("threshold")!;
  expect(parseValue(threshold, "s")).toBeGreaterThanOrEqual(1.49);
  expect(parseValue(threshold, "s")).toBeLessThan(1.6);
  const response = await server.ask<HistogramJson>("/v1/histogram", {
    selector: "shop",
    from: "-15m",
    above: threshold,
  });
  expect(response.count).toBe(before + sent);
  expect(response.above[0]!.count.estimate).toBeGreaterThan(30);
  const limit = formatValue(parseValue(threshold, "s"), "s");
  const expected = `${response.above[0]!.count.estimate} of ${response.count} above ${limit}`;
  await expect
    .poll(() => page.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
    .toContain(expected);
  // The link shows the same.
  const other = await page.context().newPage();
  await other.goto(page.url());
  await expect
    .poll(() => other.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
    .toContain(expected);
  expect(Number(await other.locator(".heatmap").getAttribute("data-drawn"))).toBe(response.count);
  await expect
    .poll(() => other.locator(".threshold").getAttribute("data-label"))
    .toBe(await line.getAttribute("data-label"));
  await other.close();
});

test("a cell has the colour of its count", async () => {
  const minute = 60e3;
  const at = end - 2 * HOUR;
  // A larger value too, because the line of the maximum covers its cell.
  const point = (start: number, count: number) => ({
    start,
    end: start + minute,
    labels: {},
    values: [...new Array<number>(count).fill(0.1), 10],
  });
  await server.send("pixel", [point(at + 10 * minute, 1), point(at + 40 * minute, 1_000)]);
  const hour = { from: new Date(at).toISOString(), to: new Date(at + HOUR).toISOString() };
  await open("explore", { selector: "pixel", ...hour, lines: "none" });
  await page.locator(".heatmap[data-drawn]").waitFor();
  const { cells } = await server.ask<{ cells: { lower: number; upper: number }[] }>(
    "/v1/histogram",
    { selector: "pixel", ...hour },
  );
  const ranges = cells.map(({ lower, upper }) => [lower, upper] as const);
  const scale = Scale.around(ranges);
  const row = Math.floor(scale.share((cells[0]!.lower + cells[0]!.upper) / 2) * ROWS);
  const colour = (minutes: number) =>
    page.evaluate(
      ([across, up]) => {
        const canvas = document.querySelector<HTMLCanvasElement>(".heatmap canvas")!;
        const [over, whole] = [document.querySelector(".heatmap .u-over")!, canvas].map((one) =>
          one.getBoundingClientRect(),
        ) as [DOMRect, DOMRect];
        const x = over.left - whole.left + over.width * across;
        const y = over.top - whole.top + over.height * (1 - up);
        return [
          ...canvas
            .getContext("2d")!
            .getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1)
            .data.slice(0, 3),
        ];
      },
      [minutes / 60, (row + 0.5) / ROWS] as const,
    );
  // An interval belongs to the column that contains its end.
  const pixels = ramp(false);
  const bytes = (step: number) => [...new Uint8Array(pixels.buffer, 4 * step, 3)];
  await expect.poll(() => colour(40.9)).toEqual(bytes(STEPS - 1));
  await expect.poll(() => colour(10.9)).toEqual(bytes(0));
  await expect.poll(() => colour(25)).toEqual([251, 252, 253]);
});

test("a link is a view", async () => {
  await explore({ threshold: "1.5s", lines: "max,p50,p99", measure: "share", colour: "equalised" });
  const before = await page.getByTestId("above-threshold").innerText();
  const link = page.url();
  const other = await page.context().newPage();
  await other.goto(link);
  await expect.poll(() => other.getByTestId("above-threshold").innerText()).toBe(before);
  await expect
    .poll(() => other.getByRole("button", { name: "equalised" }).getAttribute("aria-pressed"))
    .toBe("true");
  await expect
    .poll(() => other.getByRole("button", { name: "p50" }).getAttribute("aria-pressed"))
    .toBe("true");
  expect(
    await other.getByRole("button", { name: "p90", exact: true }).getAttribute("aria-pressed"),
  ).toBe("false");
  await other.close();
});

test("dragging across zooms, back goes back", async () => {
  await explore();
  const before = page.url();
  const over = (await page.locator(".heatmap .u-over").boundingBox())!;
  const y = over.y + over.height / 2;
  await page.mouse.move(over.x + over.width * 0.75, y);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width * 0.95, y, { steps: 6 });
  await page.mouse.up();
  await expect.poll(() => page.url()).not.toBe(before);
  await page.goBack();
  await expect.poll(() => page.url()).toBe(before);
});

test("a selection is broken down by label", async () => {
  await explore();
  const over = (await page.locator(".heatmap .u-over").boundingBox())!;
  await page.mouse.move(over.x + over.width * 0.8, over.y + 4);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width * 0.9, over.y + over.height * 0.2, { steps: 6 });
  await page.mouse.up();
  const panel = page.getByRole("region", { name: "Breakdown by label" });
  await panel.getByRole("heading", { level: 3 }).first().waitFor();
  await expect
    .poll(() => panel.getByRole("heading", { level: 3 }).first().innerText())
    .toBe("host");
  await expect.poll(() => panel.getByRole("button").first().innerText()).toBe("web-2");
  await visitor.screenshot("breakdown");
  // The address has the rectangle: a link that is shared shows the same breakdown.
  const [link, shown] = [page.url(), await panel.innerText()];
  await page.goto("about:blank");
  await page.goto(link);
  await panel.getByRole("heading", { level: 3 }).first().waitFor();
  await expect.poll(() => panel.innerText()).toBe(shown);
});

test("a pointer near a mark shows its text, on the heatmap and on the bars below", async () => {
  await explore({ threshold: "1.5s" });
  for (const chart of [".heatmap", ".above-threshold"]) {
    const over = page.locator(`${chart} .u-over`);
    await over.scrollIntoViewIfNeeded();
    const { x, y, width, height } = (await over.boundingBox())!;
    const title = async () => {
      await page.mouse.move(x + width / 2 + 30, y + height / 2);
      await page.mouse.move(x + width / 2, y + height / 2);
      return over.getAttribute("title");
    };
    await expect.poll(title).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: deployed 1\.5$/);
  }
  expect(await page.locator(".heatmap").getAttribute("aria-label")).toContain("deployed 1.5");
});

test("each preset of the time range ends now", async () => {
  await explore();
  const presets = page.getByRole("group", { name: "Presets" });
  const names = ["5m", "15m", "1h", "6h", "1d", "7d", "30d"];
  expect(await presets.getByRole("button").allInnerTexts()).toEqual(names);
  for (const name of names) {
    const preset = presets.getByRole("button", { name, exact: true });
    await preset.click();
    await expect.poll(() => page.url()).toMatch(new RegExp(`[?&]from=-${name}&.*to=now`));
    await expect.poll(() => preset.getAttribute("aria-pressed")).toBe("true");
  }
  const all = await server.ask<HistogramJson>("/v1/histogram", { selector: "latency" });
  await expect.poll(() => visitor.drawn(), { timeout: 20_000 }).toBe(all.count);
});

test("a copied link has a fixed range, the address keeps that which ends now", async () => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await explore({ from: "-15m", to: "now" });
  await page.getByRole("button", { name: "Copy link" }).click();
  await page.getByText("Copied, with a fixed range.").waitFor();
  const link = new URL(await page.evaluate(() => navigator.clipboard.readText()));
  const settings = new URLSearchParams(link.hash.split("?")[1]);
  const [from, to] = ["from", "to"].map((name) => Date.parse(settings.get(name)!));
  expect(to! - from!).toBeGreaterThanOrEqual(15 * 60e3);
  expect(to! - from!).toBeLessThanOrEqual(15 * 60e3 + 20e3);
  expect(settings.get("selector")).toBe("latency");
  expect(page.url()).toContain("from=-15m");
});

test("queries in PromQL and CAQL have results, and errors have a position", async () => {
  const query = "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))";
  await open("explore", { ...range, language: "promql", query });
  await page.getByRole("cell", { name: "web-2" }).waitFor();
  expect(await page.getByRole("row").count()).toBe(4);
  await visitor.screenshot("query");
  await page.locator("#query").fill("sum by (host (latency)");
  await page.getByRole("button", { name: "Execute" }).click();
  await expect
    .poll(() => page.getByRole("alert").innerText())
    .toMatch(/^sum by \(host \(latency\)\n\s+\^ /);
  await open("explore", {
    ...range,
    language: "caql",
    query: 'find:histogram("latency") | histogram:merge() | histogram:percentile(99)',
  });
  await expect.poll(() => page.getByRole("row").count()).toBe(2);
  await open("explore", {
    ...range,
    language: "promql",
    query: "sum(exact_increase(latency[10m]))",
  });
  await page.locator(".heatmap[data-drawn]").waitFor();
  visitor.errors.splice(
    0,
    visitor.errors.length,
    ...visitor.errors.filter((one) => !/status of 400/.test(one)),
  );
});

test("a dashboard is created, saved, exported, deleted and imported", async () => {
  await open("dashboards", range);
  await page.getByRole("button", { name: "New dashboard" }).click();
  await page.getByLabel("Title", { exact: true }).fill("The shop");
  await page.keyboard.press("Tab");
  for (const [language, text, title] of [
    ["metric", 'latency{host="web-2"}', "Latency of web-2"],
    [
      "promql",
      "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))",
      "p99 by host",
    ],
  ]) {
    await page.getByLabel("Query language").selectOption(language!);
    await page.getByLabel("Selector or query").fill(text!);
    await page.getByLabel("Panel title").fill(title!);
    await page.getByRole("button", { name: "Add", exact: true }).click();
  }
  await page.locator(".heatmap[data-drawn]").waitFor();
  await page.getByRole("cell", { name: "web-3" }).waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await expect.poll(() => page.getByText("Unsaved.").count()).toBe(0);
  const address = page.url();
  await visitor.screenshot("dashboards");
  await page.reload();
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(page.url()).toBe(address);
  await expect.poll(() => page.getByLabel("Title", { exact: true }).inputValue()).toBe("The shop");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export file" }).click();
  const path = await (await download).path();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Confirm deletion" }).click();
  await page.getByText("No dashboards").waitFor();
  await page
    .getByLabel("Import file")
    .setInputFiles({ name: "shop.json", mimeType: "application/json", buffer: readFileSync(path) });
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(
    (await server.ask<{ dashboards: { title: string }[] }>("/v1/dashboards")).dashboards.map(
      (one) => one.title,
    ),
  ).toEqual(["The shop"]);
});

test("the percentiles of the spectrum are those of the server, below their headings", async () => {
  interface QuantilesJson {
    count: number;
    unit: string;
    quantiles: { q: number; value: { estimate: number } }[];
  }
  const parameters = { selector: "latency", ...range, q: "0.99" };
  const { count, unit, quantiles } = await server.ask<QuantilesJson>("/v1/histogram", parameters);
  await open("spectrum", { selector: "latency", ...range });
  const table = page.getByRole("table", { name: "Percentiles by powers of ten" });
  const row = table.getByRole("row", { name: /^p99 / });
  await row.waitFor();
  await expect
    .poll(() => table.getByRole("columnheader").allInnerTexts())
    .toEqual(["percentile", "value", "1 in N", "count above"]);
  const [name, value, oneIn, above] = await row.getByRole("cell").allInnerTexts();
  expect(name).toBe("p99");
  expect(value).toContain(formatValue(quantiles[0]!.value.estimate, unit));
  expect(oneIn).toBe("100");
  expect(above).toBe((count - Math.ceil(0.99 * count)).toLocaleString("en-GB"));
  const last = await table.getByRole("row").last().getByRole("cell").allInnerTexts();
  expect([last[0], last[2], last[3]]).toEqual(["max", count.toLocaleString("en-GB"), "0"]);
});

test("keys do what the pointer does", async () => {
  await explore({ threshold: "1.5s" });
  await page.locator(".heatmap").focus();
  await page.keyboard.press("ArrowLeft");
  await expect
    .poll(() => page.locator("[aria-live=polite]").innerText())
    .toMatch(/\d+ values, median/);
  const before = page.url();
  await page.keyboard.press("ArrowUp");
  await expect.poll(() => page.url()).not.toBe(before);
  await page.keyboard.press("+");
  await expect
    .poll(() => new URL(page.url()).hash)
    .not.toContain(encodeURIComponent(range.from).replaceAll("%3A", ":"));
});

test("names, labels and values are suggested", async () => {
  await open("explore", { ...range });
  const field = page.getByRole("combobox");
  await field.fill("lat");
  await page
    .getByRole("option", { name: /^latency/ })
    .first()
    .click();
  await page.locator(".heatmap[data-drawn]").waitFor();
  await field.fill("latency{ho");
  await page.getByRole("option", { name: /^host/ }).first().click();
  await page.getByRole("option", { name: /^web-2/ }).click();
  await expect.poll(() => decodeURIComponent(page.url())).toContain('latency{host="web-2"}');
});

test.each([
  ["no such metric", { selector: "nothing_of_that_name" }, /No series match|matches no series/],
  [
    "no data in the range",
    { selector: "latency", from: "2020-01-01T00:00:00Z", to: "2020-01-01T01:00:00Z" },
    /No data between/,
  ],
  ["an invalid selector", { selector: "latency{" }, /Request failed/],
])("a message says: %s", async (_, settings, expected) => {
  await open("explore", { ...range, ...settings });
  await expect.poll(() => page.locator("main").innerText()).toMatch(expected);
  // The browser logs the expected error responses.
  visitor.errors.splice(
    0,
    visitor.errors.length,
    ...visitor.errors.filter((one) => !/status of 40[04]/.test(one)),
  );
});

test("functions, metrics, labels and values are suggested while a query is typed", async () => {
  await open("explore", { ...range, language: "promql" });
  const field = page.locator("#query");
  const option = (name: RegExp) => page.getByRole("option", { name });
  await field.pressSequentially("sum by (");
  await option(/^host/).click();
  await field.pressSequentially(") (exact_inc");
  await field.press("ArrowDown");
  await field.press("Enter");
  await field.pressSequentially("laten");
  await option(/^latency/)
    .first()
    .click();
  await field.pressSequentially("{ho");
  await option(/^host/).click();
  await option(/^web-2/).click();
  await field.pressSequentially("[10m]))");
  await expect
    .poll(() => field.inputValue())
    .toBe('sum by (host) (exact_increase(latency{host="web-2"}[10m]))');
  await field.press("Enter");
  await page.locator(".heatmap[data-drawn]").waitFor();
  await open("explore", { ...range, language: "caql" });
  await field.pressSequentially('find:histogram("laten');
  await option(/^latency/)
    .first()
    .click();
  await field.pressSequentially('", "and(ho');
  await option(/^host/).click();
  await option(/^web-2/).click();
  await field.pressSequentially(')") | histogram:coun');
  await option(/^histogram:count(?!_)/)
    .first()
    .click();
  await field.pressSequentially(")");
  await expect
    .poll(() => field.inputValue())
    .toMatch(/^find:histogram\("latency", "and\(host:web-2\)"\) \| histogram:count/);
});

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});

test("buttons at the threshold say who is above it, also on a phone", async () => {
  await page.setViewportSize({ width: 390, height: 800 });
  await explore({ threshold: "1s" });
  await page.getByRole("button", { name: "Who?" }).click();
  const breakdown = page.getByLabel("Breakdown by label");
  await breakdown.getByRole("button", { name: "web-2", exact: true }).waitFor();
  const selection = page.getByRole("region", { name: "Selection" });
  await expect.poll(() => selection.innerText()).toContain("above 1 s");
  await page.getByRole("button", { name: "Split by label" }).click();
  const split = page.getByLabel("Split by label");
  // It opens with the label that separates best, as the breakdown says, not the first by name.
  const best = await breakdown.locator("h3").first().innerText();
  await expect.poll(() => split.getByLabel("Label").inputValue()).toBe(best.trim());
  await split.getByLabel("Label").selectOption({ label: "host (3)" });
  // The host that stalled comes first, with the count of the server.
  const first = split.locator("tbody tr").first();
  await expect.poll(() => first.locator("th").innerText(), { timeout: 20_000 }).toBe("web-2");
  const response = await server.ask<HistogramJson>("/v1/histogram", {
    selector: 'latency{host="web-2"}',
    ...range,
    above: "1s",
  });
  const above = response.above[0]!.count.estimate.toLocaleString("en-GB");
  await expect.poll(() => first.locator("td").first().innerText()).toBe(above);
  expect(await visitor.overflow()).toBe(0);
  await page.setViewportSize({ width: 1360, height: 900 });
  await first.getByRole("link").click();
  await expect.poll(() => page.url()).toContain("web-2");
});

test("a threshold of 0.25 asks for its unit, and one outside the values says so", async () => {
  const box = () => page.getByRole("textbox", { name: "Threshold" });
  const type = async (text: string) => {
    await box().fill(text);
    await box().press("Enter");
  };
  await explore({});
  await type("0.25");
  await page.getByRole("alert").filter({ hasText: "0.25 what?" }).waitFor();
  expect(await page.getByTestId("above-threshold").count()).toBe(0);
  await page.getByRole("button", { name: "0.25 s", exact: true }).click();
  await expect.poll(() => page.url()).toContain("threshold=0.25s");
  await page.getByTestId("above-threshold").waitFor();
  await type("1ns");
  await page.getByText("is below the smallest value").waitFor();
  await type("1h");
  await page.getByText("is not below the largest value").waitFor();
  await open("explore", { language: "promql", query: "histogram_max(latency)", ...range });
  await page.getByRole("textbox", { name: "Threshold" }).waitFor();
  await type("250");
  await page.getByRole("button", { name: "250 ms", exact: true }).click();
  await expect.poll(() => page.url()).toContain("threshold=250ms");
});

test("compare says which side is faster, and B has presets", async () => {
  await open("compare", { a: 'latency{host="web-1"}', ...range });
  const fromB = () => Date.parse(new URLSearchParams(page.url().split("?")[1]).get("from_b") ?? "");
  for (const [name, hours] of [
    ["the time before", 6],
    ["yesterday", 24],
    ["last week", 7 * 24],
  ] as const) {
    await page.getByLabel("Side B").getByRole("button", { name }).click();
    await expect.poll(fromB, { message: name }).toBe(end - (6 + hours) * HOUR);
  }
  await open("compare", {
    a: "latency",
    from: new Date(end - HOUR).toISOString(),
    to: new Date(end).toISOString(),
    from_b: new Date(end - 2 * HOUR).toISOString(),
    to_b: new Date(end - HOUR).toISOString(),
  });
  await expect
    .poll(() => page.getByTestId("comparison").innerText(), { timeout: 20_000 })
    .toMatch(/p50 [\d.]+ ms against [\d.]+ ms \([−+±]\d+ %\), p99/);
});

// An instant, as in a link of another program, was "not a valid range".
test("the heatmap of an instant is that of the minute before it", async () => {
  const instant = new Date(end - 3 * HOUR).toISOString();
  await explore({ from: instant, to: instant });
  const response = await server.ask<HistogramJson>("/v1/histogram", {
    selector: "latency",
    from: new Date(end - 3 * HOUR - 60e3).toISOString(),
    to: instant,
  });
  expect(response.count).toBeGreaterThan(0);
  const drawn = Number(await page.locator(".heatmap").getAttribute("data-drawn"));
  expect(drawn).toBe(response.count);
});

// A phone showed the options first, then the chart, and the number two screens below.
test("on a phone the number is above the options and the chart", async () => {
  await page.setViewportSize({ width: 390, height: 800 });
  await explore({ threshold: "1s" });
  const top = async (what: string) => (await page.locator(what).first().boundingBox())!.y;
  const number = await top('[data-testid="above-threshold"]');
  expect(number).toBeLessThan(await top("#threshold"));
  expect(await top("#threshold")).toBeLessThan(await top(".heatmap"));
  expect(number).toBeLessThan(800 / 2);
  await page.setViewportSize({ width: 1360, height: 900 });
});
