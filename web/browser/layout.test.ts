/** Layout of every view, from phones to wall displays: overflow, overlap, and accessibility. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { traffic } from "./traffic";
import { HAS_ALL_SCREENSHOTS, settled, Visitor } from "./visitor";

const HOUR = 3_600e3;
const DASHBOARD = {
  schema: 1,
  title: "Shop",
  panels: [
    {
      title: "Latency of the second web server",
      text: 'latency{host="web-2"}',
      language: "metric",
    },
    {
      title: "p99 by host",
      text: "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))",
      language: "promql",
    },
  ],
};

let server: Server;
let visitor: Visitor;
let page: Page;
const end = Math.floor(Date.now() / 60e3) * 60e3;
const range = { from: new Date(end - 6 * HOUR).toISOString(), to: new Date(end).toISOString() };

beforeAll(async () => {
  server = await Server.start(true);
  await server.send("latency", traffic({ end, hours: 6, interval: 10e3, requests: 12 }));
  await server.post(
    "/v1/annotations",
    JSON.stringify({ text: "deployed 1.5", time: new Date(end - 3 * HOUR).toISOString() }),
  );
  await fetch(`${server.url}/v1/dashboards/shop`, {
    method: "PUT",
    body: JSON.stringify(DASHBOARD),
  });
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const open = (view: string, settings: Record<string, string>) => visitor.open(view, settings);
const shows = (expected: RegExp) =>
  expect.poll(() => page.locator("main").innerText(), { timeout: 20_000 }).toMatch(expected);

const VIEWS: [string, Record<string, string>, RegExp][] = [
  ["overview", {}, /above now/],
  ["explore", { selector: "latency", threshold: "1.5s", ...range }, /above 1\.5 s/],
  ["explore", { ...range }, /Metrics/],
  ["spectrum", { selector: "latency", ...range }, /User impact/],
  [
    "compare",
    { a: 'latency{host="web-1"}', b: 'latency{host="web-2"}', ...range },
    /Difference over time/,
  ],
  ["host", { from: "-15m", to: "now" }, /Hiccups|No host/],
  ["wire", {}, /No operations from packets/],
  ["dashboards", {}, /Import file/],
  ["alerts", {}, /No alerts: no rules/],
  ["slos", {}, /No SLOs/],
  ["checks", {}, /No checks/],
  ["load", {}, /No load runs in this range/],
  ["sources", {}, /Reconciled since|Unreconciled/],
  ["audit", {}, /Producers and stages/],
  ["status", {}, /Healthy|problem|Backpressure|Damaged|gaps/],
];

const PROMQL = {
  ...range,
  language: "promql",
  query: "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))",
};
const SHOP = { dashboard: "shop", ...range };

test.each([...VIEWS, ["dashboards", SHOP, /web-3/]] as typeof VIEWS)(
  "%s %j: nothing overflows, and axe finds nothing",
  async (view, settings, expected) => {
    await open(view, settings);
    await shows(expected);
    const hasLight = !["host", "explore", "alerts"].includes(view);
    const isShown = (of: string) =>
      of === "1360-light" ? hasLight : of === "1360-dark" && view === "host";
    expect((await visitor.allViolations(view, isShown)).join("; ")).toBe("");
  },
);

test.each([
  ["explore", { selector: "latency", ...range }],
  ["explore", { ...range, language: "promql", query: "sum(exact_increase(latency[10m]))" }],
  ["compare", { a: 'latency{host="web-1"}', b: 'latency{host="web-2"}', ...range }],
] as [string, Record<string, string>][])(
  "%s %j: the heatmap is available as a table, which keys open",
  async (view, settings) => {
    await open(view, settings);
    const summary = page.getByText("As a table");
    await summary.waitFor();
    await summary.focus();
    await page.keyboard.press("Enter");
    await expect.poll(() => page.locator("details[open] tbody tr").count()).toBeGreaterThan(50);
    await expect
      .poll(() => page.locator("details[open] th").first().innerText())
      .toBe("from (UTC)");
  },
);

/** Phones to wall displays. */
const WIDTHS = [360, 480, 640, 820, 1_024, 1_200, 1_920, 2_560, 3_840];
const WIDE_VIEWS: typeof VIEWS = [
  ...VIEWS,
  ["explore", PROMQL, /web-3/],
  ["dashboards", SHOP, /web-3/],
];

/** Overlapping texts, fields and buttons. The leading of lines may overlap. */
function overlapping(): string[] {
  const places: { what: string; of: Node; box: DOMRect }[] = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement!;
    if (
      !node.textContent?.trim() ||
      parent.closest(".hidden, .skip, option, details:not([open]) > :not(summary)")
    )
      continue;
    // On narrow screens the header of a table is for screen readers only.
    const head = parent.closest("thead");
    if (head && getComputedStyle(head).clipPath !== "none") continue;
    const text = document.createRange();
    text.selectNodeContents(node);
    const scrolls = parent.closest(".scroll-x, pre, nav")?.getBoundingClientRect();
    for (const box of text.getClientRects()) {
      if (scrolls && box.right > scrolls.right) continue;
      places.push({
        what: node.textContent.trim().slice(0, 30),
        of: node,
        box: new DOMRect(box.x, box.y + box.height * 0.2, box.width, box.height * 0.6),
      });
    }
  }
  for (const field of document.querySelectorAll(
    "input:not([type=file]), select, textarea, .heatmap, .lines, .above-threshold",
  )) {
    places.push({
      what: field.id || field.className || field.tagName,
      of: field,
      box: field.getBoundingClientRect(),
    });
  }
  const found: string[] = [];
  places.forEach((one, at) => {
    for (const other of places.slice(at + 1)) {
      if (one.of === other.of || one.of.contains(other.of) || other.of.contains(one.of)) continue;
      const across =
        Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const down =
        Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      if (across > 1 && down > 1) found.push(`"${one.what}" and "${other.what}"`);
    }
  });
  return found.slice(0, 5);
}

test.each(WIDE_VIEWS)(
  "%s %j fits every width: nothing overflows, no text overlaps",
  async (view, settings, expected) => {
    await open(view, settings);
    await shows(expected);
    for (const width of WIDTHS) {
      await page.setViewportSize({
        width,
        height: width > 2_000 ? Math.round((width * 9) / 16) : 900,
      });
      await settled(page);
      expect(await visitor.overflow(), `${view} at ${width} px`).toBeLessThanOrEqual(0);
      expect((await page.evaluate(overlapping)).join("; "), `${view} at ${width} px`).toBe("");
      if (HAS_ALL_SCREENSHOTS && width === 2_560) await visitor.screenshot(`${view}-${width}`);
    }
    await page.setViewportSize({ width: 1360, height: 900 });
  },
);

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
