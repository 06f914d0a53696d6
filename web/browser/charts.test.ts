/** Line charts: what a pointer and keys do with them, on a real server with known data. */

import { readFileSync } from "node:fs";

import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import { formatFrequency } from "../src/lib/unit";
import { Server } from "./server";
import { traffic } from "./traffic";
import { HAS_ALL_SCREENSHOTS, settled, Visitor } from "./visitor";

const HOUR = 3_600e3;
const P99 = "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))";

let server: Server;
let visitor: Visitor;
let page: Page;
/** Not a multiple of the longest step that fits, so that the page takes a shorter one. */
const end = Math.floor(Date.now() / 120e3) * 120e3 - 60e3;
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
  await expect
    .poll(() => readout().locator("strong").innerText())
    .toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
  // In the stall, its host is the slowest.
  await expect
    .poll(() => listed())
    .toEqual(['{host="web-2"}', expect.any(String), expect.any(String)]);
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
  await expect.poll(() => left()).toBeLessThan(last);
  await expect.poll(() => readout().locator("strong").innerText()).not.toBe(time);
  const style = await cursor.evaluate((one) => getComputedStyle(one).borderRightStyle);
  expect(style).toBe("solid");
  await expect
    .poll(() => page.locator(".lines + [aria-live=polite]").innerText())
    .toMatch(/^\d{4}-.*: .*web-\d"} [\d.]+ m?s, max [\d.]+ m?s/);
  await page.keyboard.press("End");
  await expect.poll(() => readout().locator("strong").innerText()).toBe(time);
  await page.keyboard.press("Escape");
  await expect.poll(() => readout().count()).toBe(0);
});

test("arrow keys draw a cursor on a heatmap too, and its column has statistics", async () => {
  await visitor.explore({ selector: "latency", ...range });
  await page.locator(".heatmap").focus();
  const cursor = page.locator(".heatmap .u-cursor-x");
  await page.keyboard.press("ArrowLeft");
  const last = (await cursor.boundingBox())!;
  const over = (await page.locator(".heatmap .u-over").boundingBox())!;
  expect(over.x + over.width - last.x).toBeLessThan(20);
  const heading = page.getByLabel("Statistics").locator("h2").first();
  const time = await heading.innerText();
  expect(time).toMatch(/^\d{4}-\d\d-\d\d/);
  await page.keyboard.press("Shift+ArrowLeft");
  await expect.poll(() => heading.innerText()).not.toBe(time);
  expect((await cursor.boundingBox())!.x).toBeLessThan(last.x - 10);
  await page.keyboard.press("Escape");
  await expect.poll(() => heading.innerText()).toBe("Whole range");
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
  await expect.poll(() => line("web-2").getAttribute("aria-pressed")).toBe("false");
  await point(0.86);
  await readout().waitFor();
  expect((await listed()).join()).not.toContain("web-2");
  await expect.poll(() => listed()).toHaveLength(2);
  await line("web-2").click();
  await point(0.86);
  await expect.poll(() => listed()).toHaveLength(3);
  await line("web-3").click({ modifiers: ["Shift"] });
  await point(0.86);
  await expect.poll(() => listed()).toEqual(['{host="web-3"}']);
  await line("web-3").click({ modifiers: ["Shift"] });
  await point(0.86);
  await expect.poll(() => listed()).toHaveLength(3);
});

test("a threshold is a line over the chart, also one outside of it", async () => {
  await p99();
  await page.getByLabel("Threshold", { exact: true }).fill("1.5s");
  await page.keyboard.press("Enter");
  const line = page.locator(".lines .threshold");
  await line.waitFor();
  await expect.poll(() => line.getAttribute("data-label")).toBe("1.5 s");
  await expect.poll(() => line.getAttribute("class")).not.toContain("outside");
  expect(page.url()).toContain("threshold=1.5s");
  await p99({ threshold: "90s" });
  await line.waitFor();
  await expect.poll(() => line.getAttribute("class")).toContain("outside");
});

test("each of twenty lines has a style of its own, and the tab a title", async () => {
  const query = `label_replace(vector(0), "n", "0", "", "")`;
  const all = Array.from({ length: 20 }, (_, at) =>
    query.replace('"0"', `"${at}"`).replace("vector(0)", `vector(${at})`),
  ).join(" or ");
  await ask(all);
  await page.getByRole("button", { name: 'n="19"' }).waitFor();
  await page.getByRole("button", { name: "12 more" }).click();
  const styles = await page
    .locator("table .swatch line")
    .evaluateAll((lines) =>
      lines.map((one) => one.getAttribute("stroke")! + one.getAttribute("stroke-dasharray")!),
    );
  expect(styles).toHaveLength(20);
  expect(new Set(styles).size).toBe(20);
  await p99();
  await expect
    .poll(() => page.title())
    .toMatch(/^histogram_quantile\(0\.99.*… · Explore · topdeck$/);
  await visitor.open("status", {});
  await expect.poll(() => page.title()).toBe("Status · topdeck");
});

interface QueryJson {
  data: { points: { time_ns: number; value: { count: number } }[] }[];
}

test.each([
  ['rate(latency{version="1.5"}[5m])', 3],
  ["sum(rate(latency[5m]))", 1],
  ["sum by (host) (increase(latency[10m]))", 3],
])("%s draws heatmaps instead of no data", async (query, heatmaps) => {
  await ask(query);
  await page.locator(".heatmap[data-drawn]").first().waitFor();
  await settled(page);
  expect(await page.locator(".heatmap").count()).toBe(heatmaps);
  expect(await page.getByText("no data", { exact: false }).count()).toBe(0);
  // Cells differ in colour: a rate below one value per second is no single shade.
  const cells = (await visitor.cells(60, 60)).flat().map((colour) => colour.join());
  expect(new Set(cells).size).toBeGreaterThan(20);
  const at = Math.floor((end - 2 * HOUR) / 600e3) * 600e3;
  const { data } = await server.ask<QueryJson>("/v1/query", {
    query,
    language: "promql",
    from: new Date(at).toISOString(),
    to: new Date(at + 600e3).toISOString(),
    step: "600s",
  });
  const { time_ns, value } = data[0]!.points[0]!;
  expect(time_ns / 1e6).toBe(at);
  await page.getByText("As a table").first().click();
  // A column, of a minute because of `end`, ends at its evaluation.
  const stamp = new Date(at - 60e3).toISOString().slice(0, 19).replace("T", " ");
  const row = page.getByRole("row", { name: stamp }).first();
  await row.waitFor({ timeout: 5_000 });
  await expect
    .poll(() => row.getByRole("cell").nth(1).innerText())
    .toBe(formatFrequency(value.count, false));
  await visitor.screenshot(`rate-${heatmaps}`);
});

test("a panel of a dashboard draws the heatmap of a rate", async () => {
  const panels = [{ title: "Rate", text: "sum(rate(latency[5m]))", language: "promql" }];
  await fetch(`${server.url}/v1/dashboards/rate`, {
    method: "PUT",
    body: JSON.stringify({ schema: 2, title: "Rate", panels }),
  });
  await visitor.open("dashboards", { dashboard: "rate", ...range });
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(await page.locator(".heatmap").count()).toBe(1);
});

async function exported(format: string, at: Locator | Page = page): Promise<Buffer> {
  const download = page.waitForEvent("download");
  await at.getByRole("button", { name: format, exact: true }).click();
  const file = await download;
  expect(file.suggestedFilename()).toMatch(new RegExp(`^[a-z0-9-]+\\.${format.toLowerCase()}$`));
  return readFileSync(await file.path());
}

test("a chart is exported as PNG, SVG and CSV, without hidden lines", async () => {
  await p99({ threshold: "1.5s" });
  await page.getByRole("button", { name: "web-1" }).click();
  const png = await exported("PNG");
  expect(png.subarray(1, 4).toString()).toBe("PNG");
  expect(png.readUInt32BE(16)).toBe(2_000);
  const svg = (await exported("SVG")).toString();
  expect(svg).toContain("web-2");
  expect(svg).not.toContain("web-1");
  expect(svg).toContain(">1.5 s</text>");
  const problem = await page.evaluate(
    (text) =>
      new DOMParser().parseFromString(text, "image/svg+xml").querySelector("parsererror")
        ?.textContent,
    svg,
  );
  expect(problem).toBeUndefined();
  const csv = (await exported("CSV")).toString().split("\r\n");
  expect(csv[0]).toBe(
    'time,"{host=""web-2""} (s)","{host=""web-3""} (s)",' +
      '"max {host=""web-2""} (s)","max {host=""web-3""} (s)"',
  );
  expect(csv.length).toBeGreaterThan(150);
  expect(csv[100]).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z(,0\.\d+){4}$/);
  if (HAS_ALL_SCREENSHOTS) await page.evaluate(() => scrollTo(0, 0));
});

test("what is shown is copied as PromQL and as curl, of queries and of heatmaps", async () => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  const copy = async (what: string) => {
    await page.getByRole("button", { name: `Copy as ${what}` }).click();
    await page.getByText(`Copied as ${what}.`).waitFor();
    return copied();
  };
  await p99();
  expect(await copy("PromQL")).toBe(P99);
  const command = await copy("curl");
  expect(command).toContain(`curl -sG '${server.url}/v1/query'`);
  const sent = [...command.matchAll(/--data-urlencode '(\w+)=(.*)'/g)];
  const parameters = Object.fromEntries(sent.map(([, name, value]) => [name!, value!]));
  const { data } = await server.ask<QueryJson>("/v1/query", parameters);
  expect(data).toHaveLength(3);
  await visitor.explore({ selector: "latency", ...range });
  const expression = await copy("PromQL");
  expect(expression).toMatch(/^sum\(exact_increase\(latency\[\d+(ms|s|m|h)\]\)\)$/);
  expect(await copy("curl")).toContain(`${server.url}/v1/heatmap`);
  const drawn = await visitor.drawn();
  await ask(expression);
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(await visitor.drawn()).toBeGreaterThan(drawn * 0.9);
});

test("each panel of a dashboard is exported, and copied as PromQL and as curl", async () => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const panels = [
    { title: "Latency", text: 'latency{host="$host"}', language: "metric" },
    { title: "p99", text: P99, language: "promql" },
    {
      title: "Values",
      text: 'find:histogram("latency") | histogram:merge() | histogram:count()',
      language: "caql",
    },
  ];
  const variables = [{ name: "host", label: "host" }];
  await fetch(`${server.url}/v1/dashboards/copies`, {
    method: "PUT",
    body: JSON.stringify({ schema: 2, title: "Copies", variables, panels }),
  });
  await visitor.open("dashboards", { dashboard: "copies", var_host: "web-1", ...range });
  const panel = (title: string) =>
    page.locator("section").filter({ has: page.getByRole("heading", { name: title }) });
  const copied = async (title: string, what: string) => {
    const button = panel(title).getByRole("button", { name: `Copy as ${what}` });
    await button.scrollIntoViewIfNeeded();
    await button.click();
    await panel(title).getByText(`Copied as ${what}.`).waitFor();
    return page.evaluate(() => navigator.clipboard.readText());
  };
  expect(await copied("Latency", "PromQL")).toContain('latency{host="web-1"}');
  expect(await copied("Latency", "curl")).toContain(`${server.url}/v1/heatmap`);
  expect(await copied("p99", "PromQL")).toBe(P99);
  expect(await copied("Values", "curl")).toContain("language=caql");
  expect(await panel("Values").getByRole("button", { name: "Copy as PromQL" }).count()).toBe(0);
  const csv = (await exported("CSV", panel("Latency"))).toString();
  expect(csv).toMatch(/^start,end,lower \(s\),upper \(s\),count/);
  const png = await exported("PNG", panel("Latency"));
  expect(png.subarray(1, 4).toString()).toBe("PNG");
});

test("a variable of a dashboard is added, chosen, and reset to all", async () => {
  const panels = [{ title: "Latency", text: 'latency{host="$host"}', language: "metric" }];
  await fetch(`${server.url}/v1/dashboards/varied`, {
    method: "PUT",
    body: JSON.stringify({ schema: 2, title: "Varied", variables: [], panels }),
  });
  await visitor.open("dashboards", { dashboard: "varied", ...range });
  const variables = page.getByRole("group", { name: "Variables" });
  await variables.getByLabel("Variable of label").fill("host");
  await variables.getByRole("button", { name: "Add variable" }).click();
  const choice = variables.getByRole("combobox");
  const drawn = () => visitor.drawn();
  const values = async (host: string) => {
    const selector = host === "" ? "latency" : `latency{host="${host}"}`;
    return (await server.ask<{ count: number }>("/v1/histogram", { selector, ...range })).count;
  };
  await expect.poll(drawn, { timeout: 20_000 }).toBe(await values(""));
  await choice.selectOption("web-2");
  await expect.poll(() => page.url()).toContain("var_host=web-2");
  await expect.poll(drawn, { timeout: 20_000 }).toBe(await values("web-2"));
  await choice.selectOption("all");
  await expect.poll(drawn, { timeout: 20_000 }).toBe(await values(""));
  // Before the variable was added, the panel selected a host of the name "$host".
  expect(visitor.errors.splice(0).filter((one) => !one.includes("status of 404"))).toEqual([]);
});

test("the charts of a comparison show shares and quantiles under the pointer", async () => {
  const sides = { a: 'latency{host="web-1"}', b: 'latency{host="web-2"}' };
  await visitor.open("compare", { ...sides, ...range });
  await page.getByTestId("comparison").waitFor();
  const boxes = page.locator(".lines .u-over");
  const hover = async (chart: number) => {
    await boxes.nth(chart).scrollIntoViewIfNeeded();
    const { x, y, width, height } = (await boxes.nth(chart).boundingBox())!;
    await page.mouse.move(x + width * 0.3, y + height / 2);
    await readout().waitFor();
  };
  await hover(0);
  await expect.poll(() => readout().locator("strong").innerText()).toMatch(/^[\d.]+ m?s$/);
  expect((await listed()).sort()).toEqual(["A", "B"]);
  for (const value of await readout().locator(".value").allInnerTexts())
    expect(value).toMatch(/%$/);
  await hover(1);
  await expect.poll(() => readout().locator("strong").innerText()).toMatch(/^A [\d.]+ m?s$/);
  await expect.poll(() => listed()).toEqual(["B"]);
  await expect.poll(() => readout().locator(".value").innerText()).toMatch(/^[\d.]+ m?s$/);
  await visitor.screenshot("compare-readout");
});

interface DashboardsJson {
  dashboards: { name: string; title: string }[];
}

test("what is shown is pinned to a new dashboard, then to an existing one", async () => {
  await p99();
  await page.getByRole("button", { name: "Pin to dashboard" }).click();
  await page.getByLabel("Panel title").fill("Pinned p99");
  await page.getByRole("button", { name: "New dashboard" }).click();
  await page.getByText("Pinned to").waitFor();
  await visitor.explore({ selector: "latency", ...range });
  await page.getByRole("button", { name: "Pin to dashboard" }).click();
  await page.getByRole("button", { name: "Pinned p99" }).click();
  await page.getByText("Pinned to").waitFor();
  const { dashboards } = await server.ask<DashboardsJson>("/v1/dashboards");
  const { name } = dashboards.find((one) => one.title === "Pinned p99")!;
  expect(name).toBe("pinned-p99");
  const stored = await server.ask(`/v1/dashboards/${name}`);
  expect(stored).toEqual({
    schema: 2,
    title: "Pinned p99",
    panels: [
      { title: "Pinned p99", text: P99, language: "promql" },
      { title: "latency", text: "latency", language: "metric" },
    ],
  });
  await page.getByRole("link", { name: "Pinned p99" }).click();
  await expect.poll(() => page.locator("h2").count()).toBe(2);
});

test("a panel is made wide, then large, and stays so when it is saved", async () => {
  const panels = ["a", "b"].map((title) => ({ title, text: P99, language: "promql" }));
  await fetch(`${server.url}/v1/dashboards/sizes`, {
    method: "PUT",
    body: JSON.stringify({ schema: 2, title: "Sizes", panels }),
  });
  await visitor.open("dashboards", { dashboard: "sizes", ...range });
  await page.locator(".lines").nth(1).waitFor();
  await settled(page);
  const box = () => page.locator(".lines").first().boundingBox();
  const normal = (await box())!;
  const resize = page.getByRole("button", { name: "Size of a" });
  await resize.click();
  // A chart is drawn again some frames after its panel has a new size.
  const width = expect.poll(async () => (await box())?.width ?? 0, { timeout: 10_000 });
  await width.toBeGreaterThan(normal.width * 1.9);
  const wide = (await box())!;
  await resize.click();
  const height = expect.poll(async () => (await box())?.height ?? 0, { timeout: 10_000 });
  await height.toBeGreaterThan(wide.height * 1.8);
  await page.getByRole("button", { name: "Save" }).click();
  await expect.poll(() => page.getByText("Unsaved.").count()).toBe(0);
  const stored = await server.ask("/v1/dashboards/sizes");
  expect(stored).toMatchObject({ panels: [{ title: "a", size: "large" }, { title: "b" }] });
  for (const width of [390, 1360, 2560]) {
    for (const theme of ["light", "dark"] as const) {
      expect(await visitor.obstacles(width, theme), `${width} px, ${theme}`).toEqual([]);
      if (HAS_ALL_SCREENSHOTS) await visitor.screenshot(`sizes-${width}-${theme}`);
    }
  }
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
