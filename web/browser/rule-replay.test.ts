/** From a threshold to a rule, its dry run, the alert with its history, and what changed. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { traffic } from "./traffic";
import { HAS_ALL_SCREENSHOTS, Visitor } from "./visitor";

const HOUR = 3_600e3;
/** The traffic of an hour is above it all the time. */
const RULES = `groups:
- name: shop
  interval: 500ms
  rules:
  - alert: LatencyHigh
    expr: histogram_quantile(0.5, sum by (host) (exact_increase(latency[2h]))) > 0.001
    labels: {severity: page}
`;

let dir: string;
let server: Server;
let visitor: Visitor;
let page: Page;
const end = Math.floor(Date.now() / 60e3) * 60e3;
const range = { from: new Date(end - 3 * HOUR).toISOString(), to: new Date(end).toISOString() };

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "topdeck-replay-"));
  await writeFile(join(dir, "shop.yaml"), RULES);
  const settings = `[alerts]\nrule_files = [${JSON.stringify(join(dir, "*.yaml"))}]\n`;
  server = await Server.start(false, settings);
  await server.send("latency", traffic({ end, hours: 3, interval: 10e3, requests: 12 }));
  const note = (text: string, minutesAgo: number, tags: Record<string, string>) =>
    server.post(
      "/v1/annotations",
      JSON.stringify({ text, time: new Date(end - minutesAgo * 60e3).toISOString(), tags }),
    );
  await note("deployed 1.5", 90, {});
  await note('label `lb` disappeared from 14 series, 1 new, such as latency{lb="a"}', 40, {
    event: "series",
    source: "shop",
  });
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
  if (dir) await rm(dir, { recursive: true, force: true });
});

/** Overflow, and all findings of axe, on a phone, a desk and a wall display, in both themes. */
async function expectAccessible(name: string): Promise<void> {
  for (const width of [390, 1360, 2560]) {
    for (const theme of ["light", "dark"] as const) {
      expect(await visitor.violations(width, theme), `${width} px, ${theme}`).toEqual([]);
      if (HAS_ALL_SCREENSHOTS) await visitor.screenshot(`${name}-${width}-${theme}`);
    }
  }
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
}

test("Explore makes a rule of the threshold, and a dry run tells what it would do", async () => {
  await visitor.explore({ selector: "latency", threshold: "1500ms", ...range });
  await page.getByRole("button", { name: "Make a rule" }).click();
  const draft = page.getByTestId("rule-draft");
  await draft.waitFor();
  // The question was how many: the rule counts, and says where it goes.
  expect(await draft.locator("pre").innerText()).toMatch(/count_above = '1500ms'\nabove = \d+/);
  expect(await draft.innerText()).toContain("rules/LatencyHigh.toml");
  await draft.getByLabel("Fires for").selectOption("p99");
  await draft.getByLabel("Replay over").selectOption("-1d");
  for (const [format, line] of [
    ["toml", "quantile = 0.99\nabove = '1500ms'"],
    ["yaml", "expr: 'histogram_quantile(0.99, sum(exact_increase(latency[5m]))) > 1500ms'"],
  ] as const) {
    await draft.getByLabel("Format").selectOption(format);
    expect(await draft.locator("pre").innerText()).toContain(line);
    await draft.getByRole("button", { name: "Dry run" }).click();
    const sentence = page.getByTestId("replay");
    await sentence.waitFor({ timeout: 60_000 });
    expect(await sentence.innerText(), format).toMatch(
      /^would have fired \d+ times?, [\d.]+ (min|h) in all, ~?[\d,]+ requests?.* above 1500ms[.;]/,
    );
  }
  expect(await draft.locator(".period.firing").count()).toBeGreaterThan(0);
  await expectAccessible("rule-draft");
});

test("another rule has no answer yet, and keys reach all of the form", async () => {
  const draft = page.getByTestId("rule-draft");
  await draft.getByLabel("Fires for").selectOption("count");
  expect(await page.getByTestId("replay").count()).toBe(0);
  await draft.getByRole("spinbutton").fill("5");
  expect(await draft.locator("pre").innerText()).toContain("histogram_count_above(1500ms,");
  await draft.getByRole("button", { name: "Dry run" }).focus();
  await page.keyboard.press("Enter");
  await page.getByTestId("replay").waitFor({ timeout: 60_000 });
  await draft.getByRole("button", { name: "Close" }).click();
  expect(await page.getByTestId("rule-draft").count()).toBe(0);
});

test("the history has the alert, and its detail the heatmap with the threshold", async () => {
  await visitor.open("alerts", { ...range, to: "now" });
  const history = page.getByTestId("alert-history");
  const name = history.getByRole("button", { name: "LatencyHigh" }).first();
  await name.waitFor({ timeout: 20_000 });
  expect(await history.locator("ul > li").count()).toBe(3);
  await expect.poll(() => history.innerText()).toMatch(/deployed 1\.5/);
  expect(await history.innerText()).toMatch(/fired once, (about )?\d/);
  await name.focus();
  await page.keyboard.press("Enter");
  const detail = page.getByTestId("alert-detail");
  await detail.locator(".heatmap[data-drawn]").waitFor({ timeout: 20_000 });
  const text = await detail.innerText();
  expect(text).toMatch(/firing: fires until the condition no longer holds\./);
  expect(text).toMatch(/latency\{host="web-\d"\}, threshold 0\.001/);
  expect(text).toMatch(/20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\s+firing/);
  expect(await detail.locator(".threshold:not([hidden])").count()).toBe(1);
  await expectAccessible("alert-history");
  // The address has the opened alert.
  await page.reload();
  await page.getByTestId("alert-detail").waitFor({ timeout: 20_000 });
});

test("a change of series is shown until it is accepted", async () => {
  const changes = page.getByTestId("changes");
  await changes.waitFor({ timeout: 20_000 });
  expect(await changes.innerText()).toMatch(/source shop: label `lb` disappeared from 14 series/);
  await changes.getByRole("button", { name: /^Accept/ }).click();
  await expect.poll(() => changes.count(), { timeout: 20_000 }).toBe(0);
  const { changes: left } = await server.ask<{ changes: unknown[] }>("/v1/changes", {
    open: "true",
  });
  expect(left).toEqual([]);
});

test("the overview has firing alerts, and what happened since the last look", async () => {
  await page.evaluate(
    (at) => localStorage.setItem("topdeck-last-look", String(at)),
    end - 2 * HOUR,
  );
  await visitor.open("overview", {});
  const news = page.getByTestId("since-last-look");
  await news.waitFor({ timeout: 20_000 });
  const text = await news.innerText();
  for (const expected of [/LatencyHigh fires/, /deployed 1\.5/, /label `lb` disappeared/])
    expect(text).toMatch(expected);
  // What happened in the last hour is on the small heatmaps, too.
  const heatmap = page.getByRole("img", { name: /The last hour/ }).first();
  await expect
    .poll(() => heatmap.getAttribute("aria-label"), { timeout: 20_000 })
    .toMatch(/label `lb` disappeared/);
  expect(await heatmap.getByTestId("time-mark").count()).toBeGreaterThan(0);
  const link = page.getByRole("link", { name: /alerts? firing/ }).first();
  await link.waitFor({ timeout: 20_000 });
  for (const [width, theme] of [
    [1360, "light"],
    [390, "dark"],
  ] as const) {
    expect(await visitor.obstacles(width, theme), `${width} px, ${theme}`).toEqual([]);
    if (HAS_ALL_SCREENSHOTS) await visitor.screenshot(`overview-news-${width}-${theme}`);
  }
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
  await link.click();
  await expect.poll(() => page.title()).toMatch(/Alerts/);
});

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
