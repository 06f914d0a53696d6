/** What stands where an answer is not: nothing yet, waiting, long waiting, refused, gone, not whole, silent. And fingers. */

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
let troubles: string[] = [];

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
  troubles = [];
  page.on("pageerror", (error) => troubles.push(String(error)));
});

afterEach(async () => {
  await page.context().close();
  expect(troubles).toEqual([]);
});

const address = (view: string, settings: Record<string, string>) =>
  `${server.url}/#/${view}?${new URLSearchParams(settings)}`;
const says = (expected: RegExp) =>
  expect.poll(() => page.locator("main").innerText(), { timeout: 20_000 }).toMatch(expected);
const HEATMAP = "**/v1/heatmap*";

/** Answers that wait until they are let go. */
function held(): { hold: (route: Route) => Promise<void>; letGo: () => void } {
  let letGo = () => {};
  const gone = new Promise<void>((done) => (letGo = done));
  // Who stopped waiting takes no answer.
  return { hold: async (route) => (await gone, route.continue().catch(() => undefined)), letGo };
}

test.each(["explore", "spectrum", "sources"])(
  "%s: where nothing is yet, a line to paste brings the first",
  async (view) => {
    await page.goto(address(view, {}));
    await says(/curl -d 1730 'http:\/\/127\.0\.0\.1:\d+\/v1\/record\?metric=took&unit=ms'/);
  },
);

test("a series that went silent: since when, and the way there", async () => {
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
  await page.getByRole("button", { name: "Go to the last data" }).click();
  await page.locator(".picture[data-drawn]").waitFor();
  await page.goto(address("spectrum", { selector: "silent", from: "-1h", to: "now" }));
  await says(/No data since/);
});

test("a long wait says since when, and ends when one likes", async () => {
  const { hold, letGo } = held();
  await page.route(HEATMAP, hold);
  await page.goto(address("explore", { selector: "latency", ...range }));
  await says(/Waiting for the heatmap of latency …/);
  await says(/Waiting for the heatmap of latency since \d\d:\d\d:\d\d, \d+ s so far/);
  await page.getByRole("button", { name: "A quarter of the time" }).click();
  expect(decodeURIComponent(page.url())).toContain(
    `from=${new Date(end - HOUR / 2).toISOString().slice(0, 16)}`,
  );
  await page.getByRole("button", { name: "Stop" }).click();
  await says(/Stopped/);
  letGo();
  await page.getByRole("button", { name: "Ask again" }).click();
  await page.locator(".picture[data-drawn]").waitFor();
  expect(await page.getByText("Stopped").count()).toBe(0);
});

test("what was refused is said, and the picture from before stays grey", async () => {
  await page.goto(address("explore", { selector: "latency", ...range }));
  await page.locator(".picture[data-drawn]").waitFor();
  await page.route(HEATMAP, (route) =>
    route.fulfill({ status: 500, body: JSON.stringify({ error: "part 12 is damaged" }) }),
  );
  await page.getByRole("button", { name: "Earlier" }).click();
  await expect
    .poll(() => page.getByRole("alert").innerText())
    .toMatch(/Not answered\s+part 12 is damaged\s+What is shown is from before, of \d{4}-/);
  expect(await page.locator(".answer.old .picture[data-drawn]").count()).toBe(1);
  await page.unroute(HEATMAP);
  await page.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => page.getByRole("alert").count()).toBe(0);
  expect(await page.locator(".answer.old").count()).toBe(0);
});

test("a server that is gone is asked again, and what is new comes when it is back", async () => {
  await page.goto(address("explore", { selector: "latency", ...range }));
  await page.locator(".picture[data-drawn]").waitFor();
  await page.route("**/v1/*", (route) => route.abort());
  await page.getByRole("button", { name: "Later" }).click();
  await expect
    .poll(() => page.getByRole("alert").innerText())
    .toMatch(/No answer since \d\d:\d\d:\d\d, trying again/);
  await page.unroute("**/v1/*");
  // Nobody touches the page.
  await expect.poll(() => page.getByRole("alert").count(), { timeout: 15_000 }).toBe(0);
  await page.locator(".picture[data-drawn]").waitFor();
});

test("an answer that is not whole says what is missing", async () => {
  await page.route(HEATMAP, async (route) => {
    const answer = await route.fetch();
    const told = (await answer.json()) as {
      columns: { start_ns: number; end_ns: number; gaps: unknown[] }[];
    };
    const [from, to] = [told.columns[3]!, told.columns[5]!];
    // One gap touches three columns, and is one.
    for (const column of told.columns.slice(3, 6))
      column.gaps.push({
        start_ns: from.start_ns,
        end_ns: to.end_ns,
        lost: 1_204,
        reason: "the agent's journal was full",
      });
    await route.fulfill({ response: answer, json: told });
  });
  await page.goto(address("explore", { selector: "latency", ...range }));
  await says(/Not all is here\. Missing: 1,204 values: the agent's journal was full\./);
});

test("fingers: the threshold is dragged, across zooms, up and down scrolls, a tap looks at a column", async () => {
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
  await phone.locator(".picture[data-drawn]").waitFor();
  await phone.locator(".picture").scrollIntoViewIfNeeded();
  const box = async (what: string) => (await phone.locator(what).first().boundingBox())!;
  const scrolled = () => phone.evaluate(() => scrollY);

  let over = await box(".picture .u-over");
  const before = await scrolled();
  const line = await box(".threshold");
  const middle = over.x + over.width / 2;
  await drag({ x: middle, y: line.y + 12 }, { x: middle, y: line.y - 60 });
  await expect.poll(() => phone.url()).not.toContain("threshold=100ms");
  expect(await scrolled()).toBe(before);

  await phone.touchscreen.tap(middle, over.y + over.height - 20);
  await expect
    .poll(() => phone.getByRole("region", { name: "Figures" }).locator("h2").innerText())
    .toMatch(/^\d{4}-\d\d-\d\d/);

  const url = phone.url();
  await drag(
    { x: middle, y: over.y + over.height - 20 },
    { x: middle, y: over.y + over.height - 140 },
  );
  await expect.poll(scrolled).toBeGreaterThan(before);
  expect(phone.url()).toBe(url);

  over = await box(".picture .u-over");
  const low = over.y + over.height - 30;
  await drag({ x: over.x + 30, y: low }, { x: over.x + 120, y: low });
  await expect.poll(() => phone.url()).not.toBe(url);
  await context.close();
});
