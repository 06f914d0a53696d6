/** Edge cases: special names, invalid times, wrong clocks, concurrent changes. */

import { createServer, request, type Server as Http } from "node:http";

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { Server } from "./server";

let server: Server;
let browser: Browser;
let context: BrowserContext;
let page: Page;
const errors: string[] = [];
const HOUR = 3_600e3;
const end = Math.floor(Date.now() / 60e3) * 60e3;
const range = { from: new Date(end - HOUR).toISOString(), to: new Date(end).toISOString() };
const LABELS = {
  quote: 'a"b\\c',
  lines: "one\ntwo",
  dollar: "US$$ $& $1",
  __proto__x: "p",
  tag: "<b>bold</b>",
  rtl: "\u202eabc",
  long: "x".repeat(10_000),
};

beforeAll(async () => {
  server = await Server.start(false);
  const point = (labels: Record<string, string>, value: number) => ({
    start: end - 600e3,
    end: end - 590e3,
    labels,
    values: [value, value, value],
  });
  await server.send("odd", [point(LABELS, 0.1), point({ quote: "plain" }, 2)]);
  await server.send("<img src=x onerror=alert(1)>", [point({}, 0.1)]);
  await server.send("latency", [point({}, 0.1), point({ host: "a" }, 2)]);
  await fetch(`${server.url}/v1/record?metric=huge`, {
    method: "POST",
    body: "0\n1.7e308\n5e-324",
  });
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
  errors.length = 0;
  context = await browser.newContext({
    viewport: { width: 1360, height: 900 },
    timezoneId: "Europe/Berlin",
  });
  page = await context.newPage();
  page.on("pageerror", (error) => errors.push(String(error)));
});

afterEach(async () => {
  await context.close();
  expect(errors).toEqual([]);
});

const address = (view: string, settings: Record<string, string>) =>
  `${server.url}/#/${view}?${new URLSearchParams(settings)}`;
const drawn = () => page.locator(".heatmap[data-drawn]").waitFor({ timeout: 10_000 });

test("names that look like HTML are text", async () => {
  await page.goto(address("explore", range));
  await page.getByRole("link", { name: "<img src=x" }).click();
  await drawn();
  expect(await page.locator("main img").count()).toBe(0);
});

test("values with quotes, newlines and dollars are suggested and selected", async () => {
  await page.goto(address("explore", range));
  for (const value of [LABELS.quote, "one", LABELS.dollar]) {
    const label = value === "one" ? "lines" : value === LABELS.quote ? "quote" : "dollar";
    await page.getByRole("combobox").fill("");
    await page.getByRole("combobox").pressSequentially(`odd{${label}="`);
    await page.getByRole("option").filter({ hasText: value }).click();
    await drawn();
    await expect.poll(() => page.locator(".heatmap").getAttribute("data-drawn")).toBe("3");
    await page.goto(address("explore", range));
  }
});

test("the greatest and the least doubles are drawn", async () => {
  await page.goto(
    address("explore", { selector: "huge", from: "-15m", to: "now", threshold: "1e300" }),
  );
  await drawn();
  await page.getByText("1 of 3 above").waitFor({ timeout: 10_000 });
});

test.each(["explore", "spectrum", "compare", "dashboards"])(
  "an invalid time range has a message: %s",
  async (view) => {
    for (const [from, to] of [
      ["now", "-1h"],
      ["garbage", "now"],
      ["-99999999999w", "now"],
      ["9999-01-01", "now"],
    ] as const) {
      // Only the fragment differs from one range to the next: the page is not loaded again.
      await page.goto(
        address(view, { selector: "latency", a: "latency", b: 'latency{host="a"}', from, to }),
      );
      await expect.poll(() => page.locator("#from").inputValue()).toBe(from);
      await page.getByText("Invalid time range").waitFor({ timeout: 10_000 });
      await page.getByLabel("Earlier").click();
      await page.getByLabel("Zoom out").click();
    }
  },
);

test("an error is not replaced by the earlier result when a live range is refreshed", async () => {
  await page.clock.install();
  await page.goto(address("explore", { selector: "latency", from: "-1h", to: "now" }));
  await drawn();
  await page.getByRole("combobox").fill("latency{");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  const refreshed = page.waitForResponse(/\/v1\/heatmap/);
  await page.clock.fastForward(7_000);
  expect((await refreshed).status()).toBe(400);
  await expect.poll(() => page.getByRole("alert").innerText()).toContain("Request failed");
});

test("while the server counts, the count of another threshold is not shown", async () => {
  await page.goto(address("explore", { selector: "latency", ...range, threshold: "1ms" }));
  await page.getByText("6 of 6 above").waitFor();
  await page.route(/\/v1\/histogram\?.*above/, () => undefined);
  await page.getByLabel("Threshold", { exact: true }).fill("1.5s");
  await page.keyboard.press("Enter");
  await page.getByText("3 of 6 above 1.5 s").waitFor({ timeout: 5_000 });
});

test("a drag that the browser cancels changes nothing", async () => {
  await page.goto(address("explore", { selector: "latency", ...range, threshold: "1s" }));
  await drawn();
  const line = (await page.locator(".threshold").boundingBox())!;
  const over = (await page.locator(".heatmap .u-over").boundingBox())!;
  await page.mouse.move(over.x + 50, line.y);
  await page.mouse.down();
  await page.mouse.move(over.x + 50, line.y + 40);
  await page.evaluate(() => window.dispatchEvent(new PointerEvent("pointercancel")));
  await page.mouse.move(over.x + 50, over.y + over.height - 2);
  await page.mouse.up();
  expect(page.url()).toContain("threshold=1s");
  await expect.poll(() => page.getByLabel("Threshold", { exact: true }).inputValue()).toBe("1s");
});

test("late suggestions do not open over the result", async () => {
  await page.goto(address("explore", range));
  await page.getByRole("combobox").fill("latenc");
  await page.getByRole("option").first().waitFor();
  // Suggestions for labels never arrive.
  await page.route(/\/v1\/labels/, () => undefined);
  await page.getByRole("combobox").fill("latency{");
  await page.getByRole("combobox").fill("latency{}");
  const isLast = (url: string) => new URL(url).searchParams.get("search") === "h";
  const requested = page.waitForRequest((request) => isLast(request.url()));
  await page.getByRole("combobox").fill("latency{h");
  await requested;
  const aborted = page.waitForEvent("requestfailed", (request) => isLast(request.url()));
  await page.keyboard.press("Enter");
  await aborted;
  expect(await page.getByRole("option").count()).toBe(0);
});

test("a browser whose clock is a day slow shows the last hour of the server", async () => {
  await page.addInitScript(() => {
    const { now } = Date;
    Date.now = () => now() - 86_400_000;
  });
  await page.goto(address("explore", { selector: "latency", from: "-1h", to: "now" }));
  await drawn();
  expect(await page.locator(".heatmap").getAttribute("data-drawn")).toBe("6");
});

test("a browser that denies storage shows the page", async () => {
  await page.addInitScript(() => {
    for (const name of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, name, {
        get: () => {
          throw new DOMException("denied", "SecurityError");
        },
      });
    }
  });
  await page.goto(address("explore", { selector: "latency", ...range }));
  await drawn();
  await page.getByRole("button", { name: /^Theme/ }).click();
});

test("an invalid token has a message, and another can be entered", async () => {
  const unauthorized = {
    status: 401,
    contentType: "application/json",
    body: '{"error":"a token is needed"}',
  };
  await page.route(/\/v1\/status/, (route) => route.fulfill(unauthorized));
  await page.goto(address("explore", range));
  await page.getByLabel("Token").fill("tökèn🔑");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Invalid token").waitFor({ timeout: 5_000 });
  await page.reload();
  await page.getByLabel("Token").waitFor({ timeout: 5_000 });
});

test("concurrent changes of two users are not lost", async () => {
  await page.goto(address("dashboards", range));
  await page.getByRole("button", { name: "New dashboard" }).click();
  const title = (of: Page) => of.getByLabel("Title", { exact: true });
  await title(page).waitFor();
  const other = await context.newPage();
  await other.goto(page.url());
  // Both have read the dashboard before one of them changes it.
  await title(other).waitFor();
  interface DashboardListJson {
    dashboards: { title: string }[];
  }
  const titles = async () =>
    (await server.ask<DashboardListJson>("/v1/dashboards")).dashboards
      .map((one) => one.title)
      .sort();
  const save = async (of: Page, text: string) => {
    await title(of).fill(text);
    await of.getByRole("button", { name: "Save", exact: true }).click();
  };
  await save(page, "Mine");
  await expect.poll(titles).toEqual(["Mine"]);
  await save(other, "Theirs");
  await other
    .getByRole("alert")
    .filter({ hasText: "was changed or deleted since it was read" })
    .waitFor({ timeout: 5_000 });
  expect(await titles()).toEqual(["Mine"]);
  await other.getByRole("button", { name: "Save as new dashboard" }).click();
  await expect.poll(titles).toEqual(["Mine", "Theirs"]);
});

test("an imported dashboard keeps unknown keys; other files are refused", async () => {
  const later = {
    schema: 1,
    title: "Later",
    tags: ["x"],
    panels: [
      { language: "sql", text: "select 1", rows: 3 },
      { language: "metric", text: "latency", title: "L", height: 7 },
    ],
  };
  const take = (name: string, text: string) =>
    page
      .getByLabel("Import file")
      .setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(text) });
  await page.goto(address("dashboards", range));
  for (const wrong of [
    "",
    "7",
    "{",
    '{"panels":7}',
    '{"schema":3,"panels":[]}',
    "[".repeat(100_000),
    `{"panels":[],"x":"${"y".repeat(300_000)}"}`,
  ]) {
    await take("wrong.json", wrong);
    await page.getByRole("alert").waitFor({ timeout: 5_000 });
    await page.reload();
  }
  await take("later.json", JSON.stringify(later));
  await page.getByText("Unsupported panel").waitFor({ timeout: 5_000 });
  await page.getByLabel("Title", { exact: true }).fill("Later on");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect
    .poll(() => server.ask("/v1/dashboards/later"))
    .toEqual({ ...later, schema: 2, title: "Later on" });
});

test("a panel slower than its refresh interval is shown", async () => {
  await fetch(`${server.url}/v1/dashboards/slow`, {
    method: "PUT",
    body: JSON.stringify({
      schema: 1,
      title: "Slow",
      panels: [{ language: "metric", text: "latency", title: "L" }],
    }),
  });
  await page.clock.install();
  let requests = 0;
  let respond = () => {};
  const held = new Promise<void>((done) => (respond = done));
  await page.route(/\/v1\/heatmap/, async (route) => {
    requests++;
    await held;
    await route.continue().catch(() => undefined);
  });
  await page.goto(address("boards", { dashboard: "slow", from: "-1h", to: "now" }));
  await expect.poll(() => requests).toBe(1);
  // The refresh interval passes twice.
  for (let round = 0; round < 2; round++) await page.clock.fastForward(11_000);
  expect(requests).toBe(1);
  respond();
  await page.locator(".heatmap[data-drawn]").waitFor();
});

test("a dashboard of hundreds of panels requests those near the screen", async () => {
  const panels = Array.from({ length: 300 }, (_, at) => ({
    language: "metric",
    text: "latency",
    title: `panel ${at}`,
  }));
  await fetch(`${server.url}/v1/dashboards/many`, {
    method: "PUT",
    body: JSON.stringify({ schema: 1, title: "Many", panels }),
  });
  let requests = 0;
  page.on("request", (request) => void (requests += Number(request.url().includes("/v1/heatmap"))));
  await page.goto(address("boards", { dashboard: "many", ...range }));
  await page.locator(".heatmap[data-drawn]").first().waitFor();
  // Every panel that was requested is drawn: no other request follows.
  await expect.poll(() => page.locator(".heatmap[data-drawn]").count()).toBe(requests);
  expect(requests).toBeLessThan(100);
  await page.getByRole("link", { name: "panel 299" }).scrollIntoViewIfNeeded();
  await page
    .locator("section")
    .filter({ hasText: "panel 299" })
    .locator(".heatmap[data-drawn]")
    .waitFor();
});

test("the page may be served below a path", async () => {
  const proxy: Http = createServer((incoming, outgoing) => {
    if (!incoming.url!.startsWith("/below/")) return void outgoing.writeHead(404).end();
    const { method, headers } = incoming;
    const forwarded = request(
      server.url + incoming.url!.slice("/below".length),
      { method, headers: { ...headers, host: new URL(server.url).host } },
      (response) => {
        outgoing.writeHead(response.statusCode!, response.headers);
        response.pipe(outgoing);
      },
    );
    incoming.pipe(forwarded);
  });
  await new Promise<void>((done) => proxy.listen(0, "127.0.0.1", done));
  const { port } = proxy.address() as { port: number };
  const settings = { selector: "latency", ...range };
  await page.goto(`http://127.0.0.1:${port}/below/#/explore?${new URLSearchParams(settings)}`);
  await drawn();
  await page.goto("about:blank");
  proxy.closeAllConnections();
  proxy.close();
});
