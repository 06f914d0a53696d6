/**
 * What Explore opens below its heatmap: the split by label while the threshold is dragged, and the
 * requests behind a selection; also when these fail.
 */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Scale } from "../src/lib/scale";
import { Server, type Point } from "./server";
import { settled, Visitor } from "./visitor";

const MINUTE = 60e3;

let server: Server;
let visitor: Visitor;
let page: Page;
const end = Math.floor(Date.now() / MINUTE) * MINUTE;

/** An hour of requests of a host: 50 of 20 ms in each minute, and some of 900 ms. */
function hour(host: string, slow: number): Point[] {
  return Array.from({ length: 60 }, (_, at) => ({
    start: end - (60 - at) * MINUTE,
    end: end - (59 - at) * MINUTE,
    labels: { host },
    values: [...Array(50).fill(0.02), ...Array(slow).fill(0.9)] as number[],
  }));
}

beforeAll(async () => {
  server = await Server.start(false);
  await server.send("latency", [...hour("web-1", 0), ...hour("web-2", 10)]);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

/**
 * A minute's requests with exemplars, as OTLP: 48 of 20 ms, of which users a to d sent a quarter
 * each, and two of 900 ms, both of user z.
 */
function minuteWithExemplars(at: number): object {
  const time = end - (59 - at) * MINUTE;
  const bounds = [0.01, 0.03, 0.5, 1];
  const exemplar = (value: number, user: string, number: number) => ({
    timeUnixNano: `${time - 30e3 + number}000000`,
    asDouble: value,
    traceId: `${at}${number}`.padStart(32, "a"),
    spanId: `${at}${number}`.padStart(16, "b"),
    filteredAttributes: [{ key: "user", value: { stringValue: user } }],
  });
  return {
    startTimeUnixNano: `${time - MINUTE}000000`,
    timeUnixNano: `${time}000000`,
    count: "50",
    sum: 48 * 0.02 + 1.8,
    min: 0.02,
    max: 0.9,
    explicitBounds: bounds,
    bucketCounts: ["0", "48", "0", "2", "0"],
    exemplars: [
      exemplar(0.02, "abcd"[at % 4]!, 1),
      exemplar(0.02, "abcd"[(at + 1) % 4]!, 2),
      exemplar(0.9, "z", 3),
    ],
  };
}

const split = () => page.getByLabel("Split by label");

async function openSplit(): Promise<void> {
  const range = {
    from: new Date(end - 60 * MINUTE).toISOString(),
    to: new Date(end).toISOString(),
  };
  await visitor.open("explore", { selector: "latency", threshold: "100ms", ...range });
  await page.locator(".heatmap[data-drawn]").waitFor();
  await page.getByRole("button", { name: "Split by label" }).click();
  await split().locator("tbody tr").first().waitFor();
}

// Each movement was a breakdown and a histogram for each value of the label.
test("a threshold that is dragged is split when it is released", async () => {
  await openSplit();
  await expect.poll(() => split().locator("tbody tr").first().innerText()).toContain("web-2");
  const asked: string[] = [];
  page.on("request", (request) => {
    const { pathname } = new URL(request.url());
    if (/^\/v1\/(breakdown|labels|label\/)/.test(pathname)) asked.push(pathname);
  });
  const box = (await page.locator(".threshold").boundingBox())!;
  const over = (await page.locator(".heatmap .u-over").boundingBox())!;
  const label = () => page.locator(".threshold").getAttribute("data-label");
  const before = await label();
  await page.mouse.move(over.x + over.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width / 2, box.y - 40, { steps: 20 });
  await expect.poll(label).not.toBe(before);
  await settled(page);
  expect(asked).toEqual([]);
  await expect.poll(() => split().locator("h2").innerText()).toContain("Above 100");
  await page.mouse.up();
  await expect.poll(() => split().locator("h2").innerText()).not.toContain("Above 100");
  await expect.poll(() => asked.filter((path) => path === "/v1/breakdown").length).toBe(1);
});

// The split looked as if its labels were sorted.
test("a breakdown that fails is said beside the split, which goes on", async () => {
  const error = "memory limit (1 GiB) exceeded; use a shorter range";
  await page.route(/\/v1\/breakdown/, (route) =>
    route.fulfill({
      status: 422,
      contentType: "application/json",
      body: JSON.stringify({ error }),
    }),
  );
  await openSplit();
  await split().getByRole("alert").filter({ hasText: error }).waitFor();
  await expect.poll(() => split().locator("tbody tr").first().innerText()).toContain("web-2");
  for (const theme of ["light", "dark"] as const) {
    expect(await visitor.obstacles(390, theme), theme).toEqual([]);
  }
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.unroute(/\/v1\/breakdown/);
  await split().getByRole("button", { name: "Retry" }).click();
  await expect.poll(() => split().getByRole("alert").count()).toBe(0);
});

/** The operation that grew is first; too few stored traces are not compared. */
async function compareTraces(): Promise<void> {
  const path = /\/v1\/breakdown\/trace-shape/;
  const around = (ms: number) => ({ lower: ms * 0.9e6, estimate: ms * 1e6, upper: ms * 1.1e6 });
  const operations = [
    { service: "bank", name: "authorise", inside: around(880), outside: around(8) },
    { service: "shop", name: "POST /pay", inside: around(12), outside: around(12) },
  ];
  let outside = 60;
  await page.route(path, (route) => {
    const found = outside < 20 ? [] : operations;
    const sides = { inside: { stored: 60 }, outside: { stored: outside } };
    return route.fulfill({ json: { ...sides, traces_min: 20, operations: found } });
  });
  await selection()
    .getByRole("button", { name: /^Compare the traces/ })
    .click();
  const shape = page.getByRole("region", { name: "Trace shape" });
  await expect
    .poll(() => shape.innerText(), { timeout: 20_000 })
    .toMatch(
      /from 60 of the selection[^]*bank: authorise[^]*880[^]*inside[^]*8[^]*outside[^]*shop/,
    );
  outside = 0;
  await page.reload();
  await selection()
    .getByRole("button", { name: /^Compare the traces/ })
    .click();
  await expect
    .poll(() => selection().innerText(), { timeout: 20_000 })
    .toMatch(/60 of the selection and 0 outside are stored here, fewer than\s+20/);
  await page.unroute(path);
}

const selection = () => page.getByRole("region", { name: "Selection" });
const range = { from: new Date(end - 60 * MINUTE).toISOString(), to: new Date(end).toISOString() };

test("a click on a cell shows the requests behind it, and what they share", async () => {
  const dataPoints = Array.from({ length: 60 }, (_, at) => minuteWithExemplars(at));
  const metric = { name: "pay", unit: "s", histogram: { aggregationTemporality: 1, dataPoints } };
  const body = { resourceMetrics: [{ scopeMetrics: [{ metrics: [metric] }] }] };
  await server.post("/v1/metrics", JSON.stringify(body));
  await visitor.explore({ selector: "pay", ...range });
  type Cells = { cells: { lower: number; upper: number }[] };
  const { cells } = await server.ask<Cells>("/v1/histogram", { selector: "pay", ...range });
  const scale = Scale.around(cells.map(({ lower, upper }) => [lower, upper] as const));
  /** The plot, whose place changes when the page scrolls to the selection. */
  async function plot() {
    const over = page.locator(".heatmap .u-over");
    await over.scrollIntoViewIfNeeded();
    const { x, y, width, height } = (await over.boundingBox())!;
    return { x, width, row: (value: number) => y + height * (1 - scale.share(value)) };
  }
  const { x, width, row } = await plot();
  const asked: string[] = [];
  page.on("request", (request) => {
    if (/^\/v1\/(exemplars|breakdown)/.test(new URL(request.url()).pathname))
      asked.push(new URL(request.url()).pathname);
  });
  await page.mouse.click(x + width / 2, row(0.7));
  const rows = selection().locator("tbody td:first-child");
  await expect.poll(() => rows.first().innerText()).toBe("900 ms");
  expect(asked[0]).toBe("/v1/exemplars");
  // Of one column: its two slow requests, for which one exemplar stands, and that of the minute
  // before, because an interval begins before it ends.
  await expect
    .poll(() => selection().getByTestId("selected-count").innerText())
    .toMatch(/^2 values inside the selection, 2,998 outside/);
  expect(await selection().innerText()).toContain("user=z");
  expect(
    await selection()
      .getByRole("button", { name: /^a+….*copy trace id/ })
      .count(),
  ).toBe(2);
  const link = selection().getByRole("link", { name: /^a+…$/ }).first();
  expect(await link.getAttribute("href")).toMatch(/^#\/trace\?.*selector=pay&.*trace=a{20,}\d+3&/);
  expect(await selection().innerText()).toMatch(/Fewer than 20 exemplars/);
  await page.keyboard.press("Escape");
  await expect.poll(() => selection().count()).toBe(0);
  // All of them: the whole row of cells is dragged.
  const moved = await plot();
  await page.mouse.move(x + 5, moved.row(0.95));
  await page.mouse.down();
  await page.mouse.move(x + width - 5, moved.row(0.55), { steps: 6 });
  await page.mouse.up();
  const user = page.getByRole("region", { name: "Attributes of the exemplars" });
  await expect
    .poll(() => user.innerText(), { timeout: 20_000 })
    .toMatch(/user\s+z\s+100 %[^]*inside/);
  expect(await selection().getByTestId("selected-count").innerText()).toMatch(/^120 values inside/);
  await compareTraces();
  expect((await visitor.allViolations("selection")).join("; ")).toBe("");
});

test("the exemplars of a selection are compared with those of the time before", async () => {
  const baselines: (string | null)[] = [];
  page.on("request", (request) => {
    const url = new URL(request.url());
    const isBaseline = url.pathname === "/v1/exemplars" && !url.searchParams.has("above");
    if (isBaseline) baselines.push(url.searchParams.get("to"));
  });
  await visitor.explore({ selector: "pay", ...range });
  await page.locator(".heatmap").focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Enter");
  const at = (ms: number) => new Date(ms).toISOString().replace(/(:00)?\.000Z$/, "Z");
  await expect.poll(() => baselines).toContain(at(end));
  // The last column is a minute, and the one before it is compared.
  await selection().getByLabel("compared with").selectOption("before");
  await expect.poll(() => baselines).toContain(at(end - MINUTE));
  expect(page.url()).toContain("baseline=before");
  await page.keyboard.press("Escape");
  await expect.poll(() => page.url()).not.toContain("baseline");
});

test("keys select a column and those beside it, and return to the heatmap", async () => {
  await visitor.explore({ selector: "pay", ...range });
  await page.locator(".heatmap").focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Enter");
  await selection().waitFor();
  const text = () => selection().locator(".row").first().innerText();
  const last = await text();
  expect(last).toContain("all values");
  await expect.poll(() => selection().evaluate((one) => one === document.activeElement)).toBe(true);
  await page.keyboard.press("ArrowLeft");
  await expect.poll(text).not.toBe(last);
  await page.keyboard.press("ArrowRight");
  await expect.poll(text).toBe(last);
  await page.keyboard.press("Escape");
  await expect.poll(() => selection().count()).toBe(0);
  const heatmap = page.locator(".heatmap");
  await expect.poll(() => heatmap.evaluate((one) => one === document.activeElement)).toBe(true);
});

test("a token without the scope of exemplars is told which one to create", async () => {
  await page.route(/\/v1\/exemplars/, (route) =>
    route.fulfill({
      status: 403,
      contentType: "application/json",
      body: JSON.stringify({ error: "token t lacks scope exemplars" }),
    }),
  );
  await visitor.explore({ selector: "pay", ...range });
  await page.locator(".heatmap").focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Enter");
  await expect
    .poll(() => selection().innerText())
    .toMatch(/needs the scope\s+exemplars[^]*topdeck token DIR add NAME read,exemplars/);
  // The count does not need it.
  await expect
    .poll(() => selection().getByTestId("selected-count").innerText())
    .toMatch(/^50 values inside/);
  await page.unroute(/\/v1\/exemplars/);
});
