/** What nobody means to do, and somebody does: odd names, times that are none, wrong clocks, two who change the same. */

import { createServer, request, type Server as Http } from "node:http";

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { Server } from "./server";

let server: Server;
let browser: Browser;
let context: BrowserContext;
let page: Page;
const troubles: string[] = [];
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
  troubles.length = 0;
  context = await browser.newContext({
    viewport: { width: 1360, height: 900 },
    timezoneId: "Europe/Berlin",
  });
  page = await context.newPage();
  page.on("pageerror", (error) => troubles.push(String(error)));
});

afterEach(async () => {
  await context.close();
  expect(troubles).toEqual([]);
});

const address = (view: string, settings: Record<string, string>) =>
  `${server.url}/#/${view}?${new URLSearchParams(settings)}`;
const drawn = () => page.locator(".picture[data-drawn]").waitFor({ timeout: 10_000 });

test("names that look like HTML are names", async () => {
  await page.goto(address("explore", range));
  await page.getByRole("link", { name: "<img src=x" }).click();
  await drawn();
  expect(await page.locator("main img").count()).toBe(0);
});

test("values with quotes, ends of lines and dollars are offered, and looked at alone", async () => {
  await page.goto(address("explore", range));
  for (const value of [LABELS.quote, "one", LABELS.dollar]) {
    const label = value === "one" ? "lines" : value === LABELS.quote ? "quote" : "dollar";
    await page.getByRole("combobox").fill("");
    await page.getByRole("combobox").pressSequentially(`odd{${label}="`);
    await page.getByRole("option").filter({ hasText: value }).click();
    await drawn();
    await expect.poll(() => page.locator(".picture").getAttribute("data-drawn")).toBe("3");
    await page.goto(address("explore", range));
  }
});

test("the greatest and the least numbers there are can be drawn", async () => {
  await page.goto(
    address("explore", { selector: "huge", from: "-15m", to: "now", threshold: "1e300" }),
  );
  await drawn();
  await page.getByText("1 of 3 above").waitFor({ timeout: 10_000 });
});

test.each(["explore", "spectrum", "compare", "boards"])(
  "a time that is none is said to be none: %s",
  async (view) => {
    for (const [from, to] of [
      ["now", "-1h"],
      ["garbage", "now"],
      ["-99999999999w", "now"],
      ["9999-01-01", "now"],
    ] as const) {
      await page.goto("about:blank");
      await page.goto(
        address(view, { selector: "latency", a: "latency", b: 'latency{host="a"}', from, to }),
      );
      await page.getByText("This is no time").waitFor({ timeout: 10_000 });
      await page.getByLabel("Earlier").click();
      await page.getByLabel("Zoom out").click();
    }
  },
);

test("what was refused does not turn into what was shown before", async () => {
  await page.goto(address("explore", { selector: "latency", from: "-1h", to: "now" }));
  await drawn();
  await page.getByRole("combobox").fill("latency{");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await page.waitForTimeout(7_000);
  expect(await page.getByRole("alert").innerText()).toContain("Not answered");
});

test("while the server counts, nobody is told the count of another threshold", async () => {
  await page.goto(address("explore", { selector: "latency", ...range, threshold: "1ms" }));
  await page.getByText("6 of 6 above").waitFor();
  await page.route(/\/v1\/histogram\?.*above/, () => undefined);
  await page.getByLabel("Threshold", { exact: true }).fill("1.5s");
  await page.keyboard.press("Enter");
  await page.getByText("3 of 6 above 1.5 s").waitFor({ timeout: 5_000 });
});

test("a drag that the browser takes away is none", async () => {
  await page.goto(address("explore", { selector: "latency", ...range, threshold: "1s" }));
  await drawn();
  const line = (await page.locator(".threshold").boundingBox())!;
  const over = (await page.locator(".picture .u-over").boundingBox())!;
  await page.mouse.move(over.x + 50, line.y);
  await page.mouse.down();
  await page.mouse.move(over.x + 50, line.y + 40);
  await page.evaluate(() => window.dispatchEvent(new PointerEvent("pointercancel")));
  await page.mouse.move(over.x + 50, over.y + over.height - 2);
  await page.mouse.up();
  expect(page.url()).toContain("threshold=1s");
  expect(await page.getByLabel("Threshold", { exact: true }).inputValue()).toBe("1s");
});

test("offers that come late do not open over the answer", async () => {
  await page.goto(address("explore", range));
  await page.getByRole("combobox").fill("latenc");
  await page.getByRole("option").first().waitFor();
  await page.route(/\/v1\/labels/, async (route) => {
    await new Promise((done) => setTimeout(done, 800));
    await route.continue().catch(() => undefined);
  });
  await page.getByRole("combobox").fill("latency{");
  await page.getByRole("combobox").fill("latency{}");
  await page.getByRole("combobox").fill("latency{h");
  await page.keyboard.press("Enter");
  await page.waitForTimeout(1_500);
  expect(await page.getByRole("option").count()).toBe(0);
});

test("a browser whose clock is a day late sees the last hour of the server", async () => {
  await page.addInitScript(() => {
    const { now } = Date;
    Date.now = () => now() - 86_400_000;
  });
  await page.goto(address("explore", { selector: "latency", from: "-1h", to: "now" }));
  await drawn();
  expect(await page.locator(".picture").getAttribute("data-drawn")).toBe("6");
});

test("a browser that keeps nothing shows the page", async () => {
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
  await page.getByRole("button", { name: /^Colours/ }).click();
});

test("a token that can be none is said to be none, and another can be entered", async () => {
  const told = {
    status: 401,
    contentType: "application/json",
    body: '{"error":"a token is needed"}',
  };
  await page.route(/\/v1\/status/, (route) => route.fulfill(told));
  await page.goto(address("explore", range));
  await page.getByLabel("Token").fill("tökèn🔑");
  await page.getByRole("button", { name: "Enter" }).click();
  await page.getByText("This token is not known").waitFor({ timeout: 5_000 });
  await page.reload();
  await page.getByLabel("Token").waitFor({ timeout: 5_000 });
});

test("what two keep at the same time is not lost", async () => {
  await page.goto(address("boards", range));
  await page.getByRole("button", { name: "New board" }).click();
  const title = (of: Page) => of.getByLabel("Title", { exact: true });
  await title(page).waitFor();
  const other = await context.newPage();
  await other.goto(page.url());
  for (const [of, text] of [
    [page, "Mine"],
    [other, "Theirs"],
  ] as const) {
    await title(of).fill(text);
    await of.getByRole("button", { name: "Keep", exact: true }).click();
  }
  await other
    .getByRole("alert")
    .filter({ hasText: "by somebody else" })
    .waitFor({ timeout: 5_000 });
  interface Told {
    boards: { title: string }[];
  }
  const titles = async () =>
    (await server.ask<Told>("/v1/boards")).boards.map((one) => one.title).sort();
  expect(await titles()).toEqual(["Mine"]);
  await other.getByRole("button", { name: "Keep as another board" }).click();
  await expect.poll(titles).toEqual(["Mine", "Theirs"]);
});

test("a board comes back from its file as it was, whatever is in it; what is no board is refused", async () => {
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
      .getByLabel("From a file")
      .setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(text) });
  await page.goto(address("boards", range));
  for (const wrong of [
    "",
    "7",
    "{",
    '{"panels":7}',
    '{"schema":2,"panels":[]}',
    "[".repeat(100_000),
    `{"panels":[],"x":"${"y".repeat(300_000)}"}`,
  ]) {
    await take("wrong.json", wrong);
    await page.getByRole("alert").waitFor({ timeout: 5_000 });
    await page.reload();
  }
  await take("later.json", JSON.stringify(later));
  await page.getByText("A panel of a later topdeck").waitFor({ timeout: 5_000 });
  await page.getByLabel("Title", { exact: true }).fill("Later on");
  await page.getByRole("button", { name: "Keep", exact: true }).click();
  await expect.poll(() => server.ask("/v1/boards/later")).toEqual({ ...later, title: "Later on" });
});

test("a panel that takes longer than it is asked for is shown all the same", async () => {
  await fetch(`${server.url}/v1/boards/slow`, {
    method: "PUT",
    body: JSON.stringify({
      schema: 1,
      title: "Slow",
      panels: [{ language: "metric", text: "latency", title: "L" }],
    }),
  });
  await page.route(/\/v1\/heatmap/, async (route) => {
    await new Promise((done) => setTimeout(done, 12_000));
    await route.continue().catch(() => undefined);
  });
  await page.goto(address("boards", { board: "slow", from: "-1h", to: "now" }));
  await page.locator(".picture[data-drawn]").waitFor({ timeout: 20_000 });
});

test("a board of hundreds of panels asks for those that are near", async () => {
  const panels = Array.from({ length: 300 }, (_, at) => ({
    language: "metric",
    text: "latency",
    title: `panel ${at}`,
  }));
  await fetch(`${server.url}/v1/boards/many`, {
    method: "PUT",
    body: JSON.stringify({ schema: 1, title: "Many", panels }),
  });
  let asked = 0;
  page.on("request", (request) => void (asked += Number(request.url().includes("/v1/heatmap"))));
  await page.goto(address("boards", { board: "many", ...range }));
  await page.locator(".picture[data-drawn]").first().waitFor();
  await page.waitForTimeout(1_500);
  expect(asked).toBeLessThan(100);
  await page.getByRole("link", { name: "panel 299" }).scrollIntoViewIfNeeded();
  await page
    .locator("section")
    .filter({ hasText: "panel 299" })
    .locator(".picture[data-drawn]")
    .waitFor();
});

test("the page may stand below a path", async () => {
  const proxy: Http = createServer((asked, answer) => {
    if (!asked.url!.startsWith("/below/")) return void answer.writeHead(404).end();
    const { method, headers } = asked;
    const passed = request(
      server.url + asked.url!.slice("/below".length),
      { method, headers: { ...headers, host: new URL(server.url).host } },
      (told) => {
        answer.writeHead(told.statusCode!, told.headers);
        told.pipe(answer);
      },
    );
    asked.pipe(passed);
  });
  await new Promise<void>((done) => proxy.listen(0, "127.0.0.1", done));
  const { port } = proxy.address() as { port: number };
  await page.goto(
    `http://127.0.0.1:${port}/below/#/explore?${new URLSearchParams({ selector: "latency", ...range })}`,
  );
  await drawn();
  await page.goto("about:blank");
  proxy.closeAllConnections();
  proxy.close();
});
