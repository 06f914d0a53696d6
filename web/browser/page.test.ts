/** The page as people see it: a real server with known data, and a browser. */

import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { ramp, STEPS } from "../src/lib/colour";
import { ROWS } from "../src/lib/raster";
import { Scale } from "../src/lib/scale";
import { parse, value } from "../src/lib/unit";
import { Server } from "./server";
import { shop } from "./shop";
import { traffic } from "./traffic";

/** `TOPDECK_SCREENSHOTS=docs/images` keeps pictures of the views there, and `TOPDECK_SCREENSHOTS_ALL=1` of all widths and colours. */
const pictures = process.env["TOPDECK_SCREENSHOTS"];
const isAll = process.env["TOPDECK_SCREENSHOTS_ALL"] === "1";
const AXE = resolve(import.meta.dirname, "../node_modules/axe-core/axe.min.js");
/** Given to the page as a text: its policy lets no script in. */
const AXE_TEXT = readFileSync(AXE, "utf8");
const HOUR = 3_600e3;

let server: Server;
let browser: Browser;
let context: BrowserContext;
let page: Page;
const troubles: string[] = [];
const end = Math.floor(Date.now() / 60e3) * 60e3;
const range = { from: new Date(end - 6 * HOUR).toISOString(), to: new Date(end).toISOString() };

beforeAll(async () => {
  server = await Server.start(true);
  await server.send("latency", traffic({ end, hours: 6, interval: 10e3, requests: 12 }));
  await server.ask("/v1/series", { selector: "latency" });
  await fetch(`${server.url}/v1/annotations`, {
    method: "POST",
    body: JSON.stringify({ text: "deployed 1.5", time: new Date(end - 3 * HOUR).toISOString() }),
  });
  browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu"],
  });
  context = await browser.newContext({
    viewport: { width: 1360, height: 900 },
    deviceScaleFactor: 1,
    colorScheme: "light",
    timezoneId: "UTC",
  });
  page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && troubles.push(message.text()));
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on(
    "request",
    (request) =>
      request.url().startsWith(server.url) || troubles.push(`asked elsewhere: ${request.url()}`),
  );
});

afterAll(async () => {
  await browser?.close();
  await server?.stop();
});

const address = (view: string, settings: Record<string, string>) =>
  `${server.url}/#/${view}?${new URLSearchParams(settings)}`;

async function open(view: string, settings: Record<string, string>): Promise<void> {
  await page.goto("about:blank");
  await page.goto(address(view, settings));
}

async function explore(settings: Record<string, string> = {}): Promise<void> {
  await open("explore", { selector: "latency", ...range, ...settings });
  await page.locator(".picture[data-drawn]").waitFor();
}

async function keep(name: string): Promise<void> {
  if (!pictures) return;
  const folder = resolve(import.meta.dirname, "../..", pictures);
  await mkdir(folder, { recursive: true });
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}

interface Told {
  count: number;
  above: { count: { estimate: number } }[];
}

test("all that the server counts is drawn", async () => {
  await explore();
  const told = await server.ask<Told>("/v1/histogram", { selector: "latency", ...range });
  expect(told.count).toBeGreaterThan(50_000);
  const drawn = Number(await page.locator(".picture").getAttribute("data-drawn"));
  expect(drawn).toBe(told.count);
});

test("the threshold is dragged, and the page says what the server says", async () => {
  await explore({ threshold: "100ms" });
  const line = page.locator(".threshold");
  const box = (await line.boundingBox())!;
  const over = (await page.locator(".picture .u-over").boundingBox())!;
  await page.mouse.move(over.x + over.width / 2, box.y);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width / 2, box.y - 60, { steps: 8 });
  await page.mouse.up();
  await expect.poll(() => page.url()).not.toContain("threshold=100ms");
  // From here on by hand, to a round number.
  await page.getByLabel("Threshold", { exact: true }).fill("1.5s");
  await page.keyboard.press("Enter");
  const told = await server.ask<Told>("/v1/histogram", {
    selector: "latency",
    ...range,
    above: "1.5s",
  });
  const harmed = told.above[0]!.count.estimate;
  expect(harmed).toBeGreaterThan(50);
  await expect
    .poll(() => page.getByTestId("harmed").innerText())
    .toContain(
      `${harmed.toLocaleString("en-GB")} of ${told.count.toLocaleString("en-GB")} above 1.5 s`,
    );
  await keep("explore");
});

test("a web server stalls: it is seen as it happens, and counted as the server counts", async () => {
  await server.record("shop", [3]);
  await open("explore", { selector: "shop", from: "-15m", to: "now", threshold: "200ms" });
  await page.locator(".picture[data-drawn]").waitFor();
  const drawn = async () => Number(await page.locator(".picture").getAttribute("data-drawn"));
  const before = await drawn();
  let sent = 0;
  await shop({ length: 6_000, every: 20, stallAt: 2_000, stall: 2_500 }, (latencies) => {
    sent += latencies.length;
    return server.record("shop", latencies);
  });
  expect(sent).toBe(300);
  // Nobody touches the page: what is new comes by itself.
  await expect.poll(drawn, { timeout: 20_000 }).toBe(before + sent);
  // The line is dragged to 1.5 s, as near as a pixel goes.
  const line = page.locator(".threshold");
  const box = (await line.boundingBox())!;
  const over = (await page.locator(".picture .u-over").boundingBox())!;
  const shown = async () => parse((await line.getAttribute("data-label")) ?? "", "s")!;
  let y = box.y + 1;
  await page.mouse.move(over.x + over.width / 2, y);
  await page.mouse.down();
  while ((await shown()) < 1.49 && y > over.y) await page.mouse.move(over.x + over.width / 2, --y);
  await page.mouse.up();
  await expect.poll(() => page.url()).not.toContain("threshold=200ms");
  const threshold = new URLSearchParams(page.url().split("?")[1]).get("threshold")!;
  expect(parse(threshold, "s")).toBeGreaterThanOrEqual(1.49);
  expect(parse(threshold, "s")).toBeLessThan(1.6);
  const told = await server.ask<Told>("/v1/histogram", {
    selector: "shop",
    from: "-15m",
    above: threshold,
  });
  expect(told.count).toBe(before + sent);
  expect(told.above[0]!.count.estimate).toBeGreaterThan(30);
  const said = `${told.above[0]!.count.estimate} of ${told.count} above ${value(parse(threshold, "s"), "s")}`;
  await expect
    .poll(() => page.getByTestId("harmed").innerText(), { timeout: 20_000 })
    .toContain(said);
  // Whoever is sent the link sees the same.
  const other = await context.newPage();
  await other.goto(page.url());
  await expect
    .poll(() => other.getByTestId("harmed").innerText(), { timeout: 20_000 })
    .toContain(said);
  expect(Number(await other.locator(".picture").getAttribute("data-drawn"))).toBe(told.count);
  expect(await other.locator(".threshold").getAttribute("data-label")).toBe(
    await line.getAttribute("data-label"),
  );
  await other.close();
});

test("a cell has the colour of its count", async () => {
  const minute = 60e3;
  const at = end - 2 * HOUR;
  // A greater one beside them, for the line of the greatest value lies over its cell.
  const point = (start: number, count: number) => ({
    start,
    end: start + minute,
    labels: {},
    values: [...new Array<number>(count).fill(0.1), 10],
  });
  await server.send("pixel", [point(at + 10 * minute, 1), point(at + 40 * minute, 1_000)]);
  const hour = { from: new Date(at).toISOString(), to: new Date(at + HOUR).toISOString() };
  await open("explore", { selector: "pixel", ...hour, lines: "none" });
  await page.locator(".picture[data-drawn]").waitFor();
  const { cells } = await server.ask<{ cells: { lower: number; upper: number }[] }>(
    "/v1/histogram",
    { selector: "pixel", ...hour },
  );
  const ranges = cells.map(({ lower, upper }) => [lower, upper] as const);
  const scale = Scale.around(ranges);
  const row = Math.floor(scale.share((cells[0]!.lower + cells[0]!.upper) / 2) * ROWS);
  const colour = (minutes: number) =>
    page.evaluate(
      ([across, up]) => {
        const canvas = document.querySelector<HTMLCanvasElement>(".picture canvas")!;
        const [over, whole] = [document.querySelector(".picture .u-over")!, canvas].map((one) =>
          one.getBoundingClientRect(),
        ) as [DOMRect, DOMRect];
        const x = over.left - whole.left + over.width * across;
        const y = over.top - whole.top + over.height * (1 - up);
        return [
          ...canvas
            .getContext("2d")!
            .getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1)
            .data.slice(0, 3),
        ];
      },
      [minutes / 60, (row + 0.5) / ROWS] as const,
    );
  // A row stands in the column that it ends in.
  const pixels = ramp(false);
  const bytes = (step: number) => [...new Uint8Array(pixels.buffer, 4 * step, 3)];
  expect(await colour(40.9)).toEqual(bytes(STEPS - 1));
  expect(await colour(10.9)).toEqual(bytes(0));
  expect(await colour(25)).toEqual([251, 252, 253]);
});

test("a link is a view", async () => {
  await explore({ threshold: "1.5s", lines: "max,p50,p99", measure: "share", colour: "equalised" });
  const before = await page.getByTestId("harmed").innerText();
  const link = page.url();
  const other = await context.newPage();
  await other.goto(link);
  await expect.poll(() => other.getByTestId("harmed").innerText()).toBe(before);
  expect(await other.getByRole("button", { name: "equalised" }).getAttribute("aria-pressed")).toBe(
    "true",
  );
  expect(await other.getByRole("button", { name: "p50" }).getAttribute("aria-pressed")).toBe(
    "true",
  );
  expect(
    await other.getByRole("button", { name: "p90", exact: true }).getAttribute("aria-pressed"),
  ).toBe("false");
  await other.close();
});

test("dragging across zooms, back goes back", async () => {
  await explore();
  const before = page.url();
  const over = (await page.locator(".picture .u-over").boundingBox())!;
  const y = over.y + over.height / 2;
  await page.mouse.move(over.x + over.width * 0.75, y);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width * 0.95, y, { steps: 6 });
  await page.mouse.up();
  await expect.poll(() => page.url()).not.toBe(before);
  await page.goBack();
  await expect.poll(() => page.url()).toBe(before);
});

test("a rectangle is explained by its labels", async () => {
  await explore();
  const over = (await page.locator(".picture .u-over").boundingBox())!;
  await page.mouse.move(over.x + over.width * 0.8, over.y + 4);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width * 0.9, over.y + over.height * 0.2, { steps: 6 });
  await page.mouse.up();
  const panel = page.getByRole("region", { name: "What sets the rectangle apart" });
  await panel.getByRole("heading", { level: 3 }).first().waitFor();
  expect(await panel.getByRole("heading", { level: 3 }).first().innerText()).toBe("host");
  expect(await panel.getByRole("button").nth(1).innerText()).toBe("web-2");
  await keep("explain");
});

test("questions are asked in PromQL and CAQL, and mistakes have a place", async () => {
  const query = "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))";
  await open("explore", { ...range, language: "promql", query });
  await page.getByRole("cell", { name: "web-2" }).waitFor();
  expect(await page.getByRole("row").count()).toBe(4);
  await keep("question");
  await page.locator("#query").fill("sum by (host (latency)");
  await page.getByRole("button", { name: "Ask" }).click();
  await expect
    .poll(() => page.getByRole("alert").innerText())
    .toMatch(/^sum by \(host \(latency\)\n\s+\^ /);
  await open("explore", {
    ...range,
    language: "caql",
    query: 'find:histogram("latency") | histogram:merge() | histogram:percentile(99)',
  });
  await expect.poll(() => page.getByRole("row").count()).toBe(2);
  await open("explore", {
    ...range,
    language: "promql",
    query: "sum(exact_increase(latency[10m]))",
  });
  await page.locator(".picture[data-drawn]").waitFor();
  troubles.splice(0, troubles.length, ...troubles.filter((one) => !/status of 400/.test(one)));
});

test("a board is made, kept, taken along and removed", async () => {
  await open("boards", range);
  await page.getByRole("button", { name: "New board" }).click();
  await page.getByLabel("Title", { exact: true }).fill("The shop");
  await page.keyboard.press("Tab");
  for (const [language, text, title] of [
    ["metric", 'latency{host="web-2"}', "Latency of web-2"],
    [
      "promql",
      "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))",
      "p99 by host",
    ],
  ]) {
    await page.getByLabel("Asked by").selectOption(language!);
    await page.getByLabel("What it shows").fill(text!);
    await page.getByLabel("Its title").fill(title!);
    await page.getByRole("button", { name: "Add", exact: true }).click();
  }
  await page.locator(".picture[data-drawn]").waitFor();
  await page.getByRole("cell", { name: "web-3" }).waitFor();
  await page.getByRole("button", { name: "Keep" }).click();
  await expect.poll(() => page.getByText("Not kept yet.").count()).toBe(0);
  const address = page.url();
  await keep("boards");
  await page.reload();
  await page.locator(".picture[data-drawn]").waitFor();
  expect(page.url()).toBe(address);
  expect(await page.getByLabel("Title", { exact: true }).inputValue()).toBe("The shop");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "To a file" }).click();
  const path = await (await download).path();
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Really remove" }).click();
  await page.getByText("None yet").waitFor();
  await page
    .getByLabel("From a file")
    .setInputFiles({ name: "shop.json", mimeType: "application/json", buffer: readFileSync(path) });
  await page.locator(".picture[data-drawn]").waitFor();
  expect(
    (await server.ask<{ boards: { title: string }[] }>("/v1/boards")).boards.map(
      (one) => one.title,
    ),
  ).toEqual(["The shop"]);
});

test("keys do what the pointer does", async () => {
  await explore({ threshold: "1.5s" });
  await page.locator(".picture").focus();
  await page.keyboard.press("ArrowLeft");
  await expect
    .poll(() => page.locator("[aria-live=polite]").innerText())
    .toMatch(/\d+ values, median/);
  const before = page.url();
  await page.keyboard.press("ArrowUp");
  await expect.poll(() => page.url()).not.toBe(before);
  await page.keyboard.press("+");
  await expect
    .poll(() => new URL(page.url()).hash)
    .not.toContain(encodeURIComponent(range.from).replaceAll("%3A", ":"));
});

test("names, labels and values are offered", async () => {
  await open("explore", { ...range });
  const field = page.getByRole("combobox");
  await field.fill("lat");
  await page
    .getByRole("option", { name: /^latency/ })
    .first()
    .click();
  await page.locator(".picture[data-drawn]").waitFor();
  await field.fill("latency{ho");
  await page.getByRole("option", { name: /^host/ }).first().click();
  await page.getByRole("option", { name: /^web-2/ }).click();
  await expect.poll(() => decodeURIComponent(page.url())).toContain('latency{host="web-2"}');
});

test.each([
  ["no such metric", { selector: "nothing_of_that_name" }, /picks no series/],
  [
    "no data then",
    { selector: "latency", from: "2020-01-01T00:00:00Z", to: "2020-01-01T01:00:00Z" },
    /No data between/,
  ],
  ["a selector that is none", { selector: "latency{" }, /Not answered/],
])("said in words: %s", async (_, settings, expected) => {
  await open("explore", { ...range, ...settings });
  await expect.poll(() => page.locator("main").innerText()).toMatch(expected);
  // The browser reports the refusal; it is what was asked for.
  troubles.splice(0, troubles.length, ...troubles.filter((one) => !/status of 40[04]/.test(one)));
});

test("while a question is written, functions, metrics, labels and values are offered", async () => {
  await open("explore", { ...range, language: "promql" });
  const field = page.locator("#query");
  const option = (name: RegExp) => page.getByRole("option", { name });
  await field.pressSequentially("sum by (");
  await option(/^host/).click();
  await field.pressSequentially(") (exact_inc");
  await field.press("ArrowDown");
  await field.press("Enter");
  await field.pressSequentially("laten");
  await option(/^latency/)
    .first()
    .click();
  await field.pressSequentially("{ho");
  await option(/^host/).click();
  await option(/^web-2/).click();
  await field.pressSequentially("[10m]))");
  expect(await field.inputValue()).toBe(
    'sum by (host) (exact_increase(latency{host="web-2"}[10m]))',
  );
  await field.press("Enter");
  await page.locator(".picture[data-drawn]").waitFor();
  await open("explore", { ...range, language: "caql" });
  await field.pressSequentially('find:histogram("laten');
  await option(/^latency/)
    .first()
    .click();
  await field.pressSequentially('", "and(ho');
  await option(/^host/).click();
  await option(/^web-2/).click();
  await field.pressSequentially(')") | histogram:coun');
  await option(/^histogram:count(?!_)/)
    .first()
    .click();
  await field.pressSequentially(")");
  expect(await field.inputValue()).toMatch(
    /^find:histogram\("latency", "and\(host:web-2\)"\) \| histogram:count/,
  );
});

const VIEWS: [string, Record<string, string>, RegExp][] = [
  ["explore", { selector: "latency", threshold: "1.5s", ...range }, /above 1\.5 s/],
  ["explore", { ...range }, /What is measured here/],
  ["spectrum", { selector: "latency", ...range }, /Who meets it/],
  [
    "compare",
    { a: 'latency{host="web-1"}', b: 'latency{host="web-2"}', ...range },
    /Where and when they differ/,
  ],
  ["host", { from: "-15m", to: "now" }, /hiccups|No host/],
  ["boards", {}, /From a file/],
  ["sources", {}, /Everything since|explains/],
  ["status", {}, /durable|full|damaged|missing/],
];

test.each(VIEWS)(
  "%s %j: nothing overlaps, and everybody can use it",
  async (view, settings, expected) => {
    for (const [width, theme] of [
      [1360, "light"],
      [360, "light"],
      [1360, "dark"],
    ] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme: theme });
      await open(view, settings);
      await expect
        .poll(() => page.locator("main").innerText(), { timeout: 20_000 })
        .toMatch(expected);
      const beyond = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      expect(beyond, `${view} at ${width} px is ${beyond} px too wide`).toBeLessThanOrEqual(0);
      await page.evaluate(AXE_TEXT);
      interface Finding {
        id: string;
        impact: string;
        nodes: { html: string }[];
      }
      const found = (await page.evaluate("axe.run()")) as { violations: Finding[] };
      const serious = found.violations.filter(
        (one) => one.impact === "serious" || one.impact === "critical",
      );
      expect(
        serious.map(
          (one) =>
            `${one.id}: ${one.nodes
              .map((node) => node.html)
              .slice(0, 3)
              .join(" ")}`,
        ),
      ).toEqual([]);
      const isShown = view === "host" ? theme === "dark" : view !== "explore" && theme === "light";
      if (isAll || (isShown && width > 1_000)) await keep(`${view}-${width}-${theme}`);
    }
    await page.setViewportSize({ width: 1360, height: 900 });
    await page.emulateMedia({ colorScheme: "light" });
  },
);

test.each([
  ["explore", { selector: "latency", ...range }],
  ["explore", { ...range, language: "promql", query: "sum(exact_increase(latency[10m]))" }],
  ["compare", { a: 'latency{host="web-1"}', b: 'latency{host="web-2"}', ...range }],
] as [string, Record<string, string>][])(
  "%s %j: the picture is there as a table, and keys open it",
  async (view, settings) => {
    await open(view, settings);
    const summary = page.getByText("As a table");
    await summary.waitFor();
    await summary.focus();
    await page.keyboard.press("Enter");
    await expect.poll(() => page.locator("details[open] tbody tr").count()).toBeGreaterThan(50);
    expect(await page.locator("details[open] th").first().innerText()).toBe("from (UTC)");
  },
);

/** From a hand's screen to a wall's. */
const WIDTHS = [360, 480, 640, 820, 1_024, 1_200, 1_920, 2_560, 3_840];
const WIDE_VIEWS: typeof VIEWS = [
  ...VIEWS,
  [
    "explore",
    {
      ...range,
      language: "promql",
      query: "histogram_quantile(0.99, sum by (host) (exact_increase(latency[5m])))",
    },
    /web-3/,
  ],
  ["boards", { board: "shop", ...range }, /web-3/],
];

/** Texts that stand on one another, and fields or buttons. Ends of lines' boxes may: they are air. */
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
    // Heads of tables that have become lists are there for who hears the page.
    const head = parent.closest("thead");
    if (head && getComputedStyle(head).clipPath !== "none") continue;
    const text = document.createRange();
    text.selectNodeContents(node);
    const scrolls = parent.closest(".wide, pre, nav")?.getBoundingClientRect();
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
    "input:not([type=file]), select, textarea, .picture, .lines, .harm",
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
  "%s %j fits every screen: nothing is wider, no text stands on another",
  async (view, settings, expected) => {
    if (settings["board"]) {
      const board = {
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
      await fetch(`${server.url}/v1/boards/${settings["board"]}`, {
        method: "PUT",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(board),
      });
    }
    await open(view, settings);
    await expect
      .poll(() => page.locator("main").innerText(), { timeout: 20_000 })
      .toMatch(expected);
    for (const width of WIDTHS) {
      await page.setViewportSize({
        width,
        height: width > 2_000 ? Math.round((width * 9) / 16) : 900,
      });
      // Pictures follow their boxes a frame later, and their boxes what they hold.
      await page.evaluate(
        () =>
          new Promise((done) =>
            requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))),
          ),
      );
      const beyond = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      expect(beyond, `${view} at ${width} px is ${beyond} px too wide`).toBeLessThanOrEqual(0);
      expect(await page.evaluate(overlapping), `${view} at ${width} px`).toEqual([]);
    }
    await page.setViewportSize({ width: 1360, height: 900 });
  },
);

test("nothing went wrong and nothing was asked elsewhere", () => {
  expect(troubles).toEqual([]);
});
