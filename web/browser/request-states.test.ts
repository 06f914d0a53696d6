/** States of a request: empty, pending, late, failed, retried, incomplete, silent. And touch. */

import { chromium, type Browser, type Page, type Route } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { Server } from "./server";
import { traffic } from "./traffic";

const HOUR = 3_600e3;
const end = Math.floor(Date.now() / 60e3) * 60e3;
const range = { from: new Date(end - 2 * HOUR).toISOString(), to: new Date(end).toISOString() };

let server: Server;
let browser: Browser;
let page: Page;
let errors: string[] = [];

beforeAll(async () => {
  server = await Server.start(false);
  browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu"],
  });
});

afterAll(async () => {
  await browser?.close();
  await server?.stop();
});

beforeEach(async () => {
  const context = await browser.newContext({
    viewport: { width: 1000, height: 900 },
    colorScheme: "light",
    timezoneId: "UTC",
  });
  page = await context.newPage();
  errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
});

afterEach(async () => {
  await page.context().close();
  expect(errors).toEqual([]);
});

const address = (view: string, settings: Record<string, string>) =>
  `${server.url}/#/${view}?${new URLSearchParams(settings)}`;
const says = (expected: RegExp) =>
  expect.poll(() => page.locator("main").innerText(), { timeout: 20_000 }).toMatch(expected);
const HEATMAP = "**/v1/heatmap*";

/** A handler that delays responses until `release`. */
function delayed(): { hold: (route: Route) => Promise<void>; release: () => void } {
  let release = () => {};
  const gone = new Promise<void>((done) => (release = done));
  // An aborted request takes no response.
  return { hold: async (route) => (await gone, route.continue().catch(() => undefined)), release };
}

test.each(["explore", "spectrum", "sources"])(
  "%s: without data, a command to paste sends the first",
  async (view) => {
    await page.goto(address(view, {}));
    await says(/curl -d 1730 'http:\/\/127\.0\.0\.1:\d+\/v1\/record\?metric=took&unit=ms'/);
  },
);

test("a series without recent data: since when, and a button that goes there", async () => {
  await server.send(
    "silent",
    traffic({ end: end - 2 * HOUR, hours: 1, interval: 60e3, requests: 4 }),
  );
  await server.send("latency", traffic({ end, hours: 2, interval: 60e3, requests: 4 }));
  await page.goto(address("explore", { selector: "silent", from: "-1h", to: "now" }));
  await says(
    new RegExp(
      `No data since ${new Date(end - 2 * HOUR).toISOString().slice(0, 19).replace("T", " ")}`,
    ),
  );
  await page.getByRole("button", { name: "Go to last data" }).click();
  await page.locator(".heatmap[data-drawn]").waitFor();
  await page.goto(address("spectrum", { selector: "silent", from: "-1h", to: "now" }));
  await says(/No data since/);
});

test("a late request shows since when, and can be cancelled", async () => {
  const { hold, release } = delayed();
  await page.clock.install();
  await page.route(HEATMAP, hold);
  await page.goto(address("explore", { selector: "latency", ...range }));
  await says(/Waiting for the heatmap of latency …/);
  await page.clock.fastForward(2_000);
  await says(/Waiting for the heatmap of latency since \d\d:\d\d:\d\d \(\d+ s\)/);
  await page.getByRole("button", { name: "Use ¼ range" }).click();
  expect(decodeURIComponent(page.url())).toContain(
    `from=${new Date(end - HOUR / 2).toISOString().slice(0, 16)}`,
  );
  await page.getByRole("button", { name: "Cancel" }).click();
  await says(/Cancelled\./);
  release();
  await page.getByRole("button", { name: "Retry" }).click();
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(await page.getByText("Cancelled.").count()).toBe(0);
});

test("a failed request has a message, and the earlier heatmap stays in grey", async () => {
  await page.goto(address("explore", { selector: "latency", ...range }));
  await page.locator(".heatmap[data-drawn]").waitFor();
  await page.route(HEATMAP, (route) =>
    route.fulfill({ status: 500, body: JSON.stringify({ error: "part 12 is damaged" }) }),
  );
  await page.getByRole("button", { name: "Earlier" }).click();
  await expect
    .poll(() => page.getByRole("alert").innerText())
    .toMatch(/Request failed\s+part 12 is damaged\s+Below: earlier result, received \d{4}-/);
  expect(await page.locator(".answer.stale .heatmap[data-drawn]").count()).toBe(1);
  await page.unroute(HEATMAP);
  await page.getByRole("button", { name: "Retry" }).click();
  await expect.poll(() => page.getByRole("alert").count()).toBe(0);
  expect(await page.locator(".answer.stale").count()).toBe(0);
});

test("a server that stopped is retried, and new data appears once it is back", async () => {
  await page.clock.install();
  await page.goto(address("explore", { selector: "latency", ...range }));
  await page.locator(".heatmap[data-drawn]").waitFor();
  await page.route("**/v1/*", (route) => route.abort());
  await page.getByRole("button", { name: "Later" }).click();
  await expect
    .poll(() => page.getByRole("alert").innerText())
    .toMatch(/No response since \d\d:\d\d:\d\d, retrying/);
  await page.unroute("**/v1/*");
  // The page retries without input.
  await page.clock.fastForward(4_000);
  await expect.poll(() => page.getByRole("alert").count(), { timeout: 15_000 }).toBe(0);
  await page.locator(".heatmap[data-drawn]").waitFor();
});

test("an incomplete result describes its gaps", async () => {
  await page.route(HEATMAP, async (route) => {
    const answer = await route.fetch();
    const json = (await answer.json()) as {
      columns: { start_ns: number; end_ns: number; gaps: unknown[] }[];
    };
    const [from, to] = [json.columns[3]!, json.columns[5]!];
    // One gap overlaps three columns.
    for (const column of json.columns.slice(3, 6))
      column.gaps.push({
        start_ns: from.start_ns,
        end_ns: to.end_ns,
        lost: 1_204,
        reason: "the agent's journal was full",
      });
    await route.fulfill({ response: answer, json });
  });
  await page.goto(address("explore", { selector: "latency", ...range }));
  await says(/Incomplete data: 1,204 samples or records missing: the agent's journal was full\./);
});

test("touch: drag of the threshold, zoom, scroll, tap on a column", async () => {
  const context = await browser.newContext({
    viewport: { width: 360, height: 740 },
    hasTouch: true,
    isMobile: true,
    timezoneId: "UTC",
  });
  const phone = await context.newPage();
  const touch = await context.newCDPSession(phone);
  async function drag(from: { x: number; y: number }, to: { x: number; y: number }): Promise<void> {
    await touch.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [from] });
    for (let step = 1; step <= 8; step++) {
      const touchPoints = [
        { x: from.x + ((to.x - from.x) * step) / 8, y: from.y + ((to.y - from.y) * step) / 8 },
      ];
      await touch.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints });
    }
    await touch.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
  }
  await phone.goto(address("explore", { selector: "latency", threshold: "100ms", ...range }));
  await phone.locator(".heatmap[data-drawn]").waitFor();
  await phone.locator(".heatmap").scrollIntoViewIfNeeded();
  const box = async (what: string) => (await phone.locator(what).first().boundingBox())!;
  const scrolled = () => phone.evaluate(() => scrollY);

  let over = await box(".heatmap .u-over");
  const line = await box(".threshold");
  const middle = over.x + over.width / 2;
  await drag({ x: middle, y: line.y + 12 }, { x: middle, y: line.y - 60 });
  await expect.poll(() => phone.url()).not.toContain("threshold=100ms");
  // The page did not scroll. A shorter sentence above the heatmap leaves it where it is, too.
  await expect.poll(async () => (await box(".heatmap .u-over")).y).toBeCloseTo(over.y, 0);

  await phone.touchscreen.tap(middle, over.y + over.height - 20);
  await expect
    .poll(() => phone.getByRole("region", { name: "Statistics" }).locator("h2").innerText())
    .toMatch(/^\d{4}-\d\d-\d\d/);

  const url = phone.url();
  const before = await scrolled();
  await drag(
    { x: middle, y: over.y + over.height - 20 },
    { x: middle, y: over.y + over.height - 140 },
  );
  await expect.poll(scrolled).toBeGreaterThan(before);
  expect(phone.url()).toBe(url);

  over = await box(".heatmap .u-over");
  const low = over.y + over.height - 30;
  await drag({ x: over.x + 30, y: low }, { x: over.x + 120, y: low });
  await expect.poll(() => phone.url()).not.toBe(url);
  await context.close();
});
