/** Line charts: what a pointer and keys do with them, on a real server with known data. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import { Server } from "./server";
import { traffic } from "./traffic";
import { HAS_ALL_SCREENSHOTS, settled, Visitor } from "./visitor";

const HOUR = 3_600e3;
const P99 = "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))";

let server: Server;
let visitor: Visitor;
let page: Page;
const end = Math.floor(Date.now() / 60e3) * 60e3;
const range = { from: new Date(end - 6 * HOUR).toISOString(), to: new Date(end).toISOString() };

beforeAll(async () => {
  server = await Server.start(false);
  await server.send("latency", traffic({ end, hours: 6, interval: 10e3, requests: 12 }));
  visitor = await Visitor.start(server);
  page = visitor.page;
});

beforeEach(async () => {
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

async function ask(query: string, settings: Record<string, string> = {}): Promise<void> {
  await visitor.open("explore", { ...range, language: "promql", query, ...settings });
}

async function p99(settings: Record<string, string> = {}): Promise<void> {
  await ask(P99, settings);
  await page.getByRole("cell", { name: "web-2" }).waitFor();
  await settled(page);
}

const readout = () => page.locator(".readout");
/** Hosts in the readout, the greatest value first. */
const listed = () => readout().locator(".name").allInnerTexts();

/** Moves the pointer to a fraction of the chart's width; returns its box. */
async function point(share: number): Promise<{ x: number; y: number; width: number }> {
  const over = (await page.locator(".lines .u-over").boundingBox())!;
  await page.mouse.move(over.x + over.width * share, over.y + over.height / 2);
  return { x: over.x, y: over.y + over.height / 2, width: over.width };
}

test("the pointer shows time, value with unit, and maximum beside each percentile", async () => {
  await p99();
  await point(0.86);
  await readout().waitFor();
  expect(await readout().locator("strong").innerText()).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
  // In the stall, its host is the slowest.
  expect(await listed()).toEqual(['{host="web-2"}', expect.any(String), expect.any(String)]);
  const values = await readout().locator(".value").allInnerTexts();
  expect(values[0]).toMatch(/^[\d.]+ s, max [\d.]+ s$/);
  for (const value of values) expect(value).toMatch(/^[\d.]+ m?s, max [\d.]+ m?s$/);
  await visitor.screenshot("chart");
  await page.mouse.move(0, 0);
  await expect.poll(() => readout().count()).toBe(0);
});

test("arrow keys move a cursor that is drawn, and say what is below it", async () => {
  await p99();
  await page.locator(".lines").focus();
  const cursor = page.locator(".lines .u-cursor-x");
  const left = async () => (await cursor.boundingBox())!.x;
  await page.keyboard.press("ArrowLeft");
  await readout().waitFor();
  const last = await left();
  const time = await readout().locator("strong").innerText();
  await page.keyboard.press("Shift+ArrowLeft");
  expect(await left()).toBeLessThan(last);
  expect(await readout().locator("strong").innerText()).not.toBe(time);
  const style = await cursor.evaluate((one) => getComputedStyle(one).borderRightStyle);
  expect(style).toBe("solid");
  await expect
    .poll(() => page.locator(".lines + [aria-live=polite]").innerText())
    .toMatch(/^\d{4}-.*: .*web-\d"} [\d.]+ m?s, max [\d.]+ m?s/);
  await page.keyboard.press("End");
  expect(await readout().locator("strong").innerText()).toBe(time);
  await page.keyboard.press("Escape");
  await expect.poll(() => readout().count()).toBe(0);
});

test("a drag zooms, and the back button returns", async () => {
  await p99();
  const before = page.url();
  const { x, y, width } = await point(0.5);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.75, y, { steps: 6 });
  await page.mouse.up();
  await expect.poll(() => page.url()).not.toBe(before);
  const settings = new URLSearchParams(page.url().split("?")[1]);
  const length = Date.parse(settings.get("to")!) - Date.parse(settings.get("from")!);
  expect(length / HOUR).toBeGreaterThan(1.4);
  expect(length / HOUR).toBeLessThan(1.6);
  await page.goBack();
  await expect.poll(() => page.url()).toBe(before);
});

test("a click in the legend hides a line and shows it again; with shift all others", async () => {
  await p99();
  const line = (host: string) => page.getByRole("button", { name: host });
  await line("web-2").click();
  expect(await line("web-2").getAttribute("aria-pressed")).toBe("false");
  await point(0.86);
  await readout().waitFor();
  expect((await listed()).join()).not.toContain("web-2");
  expect(await listed()).toHaveLength(2);
  await line("web-2").click();
  await point(0.86);
  expect(await listed()).toHaveLength(3);
  await line("web-3").click({ modifiers: ["Shift"] });
  await point(0.86);
  expect(await listed()).toEqual(['{host="web-3"}']);
  await line("web-3").click({ modifiers: ["Shift"] });
  await point(0.86);
  expect(await listed()).toHaveLength(3);
});

test("a threshold is a line over the chart, also one outside of it", async () => {
  await p99();
  await page.getByLabel("Threshold", { exact: true }).fill("1.5s");
  await page.keyboard.press("Enter");
  const line = page.locator(".lines .threshold");
  await line.waitFor();
  expect(await line.getAttribute("data-label")).toBe("1.5 s");
  expect(await line.getAttribute("class")).not.toContain("outside");
  expect(page.url()).toContain("threshold=1.5s");
  await p99({ threshold: "90s" });
  await line.waitFor();
  expect(await line.getAttribute("class")).toContain("outside");
});

test("each of twenty lines has a style of its own, and the tab a title", async () => {
  const query = `label_replace(vector(0), "n", "0", "", "")`;
  const all = Array.from({ length: 20 }, (_, at) =>
    query.replace('"0"', `"${at}"`).replace("vector(0)", `vector(${at})`),
  ).join(" or ");
  await ask(all);
  await page.getByRole("button", { name: 'n="19"' }).waitFor();
  const styles = await page
    .locator("table .swatch line")
    .evaluateAll((lines) =>
      lines.map((one) => one.getAttribute("stroke")! + one.getAttribute("stroke-dasharray")!),
    );
  expect(styles).toHaveLength(20);
  expect(new Set(styles).size).toBe(20);
  await p99();
  expect(await page.title()).toMatch(/^histogram_quantile\(0\.99.*… · Explore · topdeck$/);
  await visitor.open("status", {});
  await expect.poll(() => page.title()).toBe("Status · topdeck");
});

test.each([390, 1360, 2560])("a chart with its readout is accessible at %d px", async (width) => {
  await page.setViewportSize({ width, height: 900 });
  await p99({ threshold: "1.5s" });
  for (const theme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: theme });
    await settled(page);
    await point(0.4);
    await readout().waitFor();
    expect(await visitor.violations(width, theme), `${width} px, ${theme}`).toEqual([]);
    if (HAS_ALL_SCREENSHOTS) await visitor.screenshot(`chart-${width}-${theme}`);
  }
});

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
