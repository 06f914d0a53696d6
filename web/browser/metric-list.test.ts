/** From the list of metrics to the data of one. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { Visitor } from "./visitor";

const HOUR = 3_600e3;

let server: Server;
let visitor: Visitor;
let page: Page;
const end = Math.floor(Date.now() / 60e3) * 60e3;

beforeAll(async () => {
  server = await Server.start(false);
  await server.record("latency", [1, 2, 3]);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

test("a metric without data in the last hour opens where its data is", async () => {
  const at = end - 30 * HOUR;
  const labels = { service: "batch" };
  await server.send("nightly", [{ start: at - 60e3, end: at, labels, values: [0.1, 0.2, 0.3] }]);
  await visitor.open("explore", { selector: "nightly" });
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(await visitor.drawn()).toBe(3);
});

// The list of metrics had no filter, and no keys.
test("a metric is found in the list by a part of its name, with keys only", async () => {
  await visitor.open("explore", {});
  const filter = page.getByLabel("Filter");
  await filter.fill("tenc");
  await expect.poll(() => page.getByRole("link", { name: "latency", exact: true }).count()).toBe(1);
  await filter.press("ArrowDown");
  expect(await page.evaluate(() => document.activeElement?.textContent?.trim())).toBe("latency");
  await page.keyboard.press("ArrowUp");
  await filter.fill("no such metric");
  await page.getByText("No metric contains").waitFor();
  await filter.fill("latency");
  await filter.press("Enter");
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(page.url()).toContain("selector=latency");
});

// "Not found … 2 series of other kinds. Retry": neither the kind nor what to do was said.
test("a gauge in Explore says that it is one, and opens in the PromQL tab", async () => {
  await server.post("/write?precision=ms", `queue depth=7 ${Date.now()}`);
  await visitor.open("explore", { selector: "queue_depth" });
  const link = page.getByRole("button", { name: "open the gauge in the PromQL tab" });
  await link.waitFor();
  expect(await page.getByRole("button", { name: "Retry" }).count()).toBe(0);
  await link.click();
  await expect.poll(() => page.url()).toContain("language=promql&query=queue_depth");
});
