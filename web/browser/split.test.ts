/** Split by label in Explore: what a user sees who drags the threshold, and what fails. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

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
