/** Checks: state, availability and durations by phase, with real targets. */

import { createServer, type Server as HttpServer } from "node:http";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { Visitor } from "./visitor";

let target: HttpServer;
let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  // A request for /never has no answer.
  target = createServer(({ url }, response) => {
    if (url !== "/never") response.end("Welcome");
  });
  await new Promise<void>((done) => target.listen(0, "127.0.0.1", done));
  const address = target.address();
  const port = address && typeof address === "object" ? address.port : 0;
  const check = (name: string, key: string) =>
    `[[check]]\nname = "${name}"\n${key}\ninterval = "500ms"\ntimeout = "10s"\n`;
  // Nothing listens on port 1. The third one has not begun, or waits for an answer.
  const settings =
    check("front page", `http = "http://127.0.0.1:${port}/"`) +
    check("database", 'tcp = "127.0.0.1:1"') +
    `[[check]]\nname = "daily"\nhttp = "http://127.0.0.1:${port}/never"\n` +
    'interval = "24h"\ntimeout = "24h"\n';
  server = await Server.start(false, settings);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
  target?.closeAllConnections();
  target?.close();
});

const main = () => page.locator("main");
const says = (expected: RegExp) =>
  expect.poll(() => main().innerText(), { timeout: 60_000 }).toMatch(expected);
const row = (name: string) => page.getByTestId("checks").locator("tbody tr", { hasText: name });

test("a check that is down comes first, an unknown one is not green", async () => {
  await visitor.open("checks", { from: "-15m" });
  await expect.poll(() => row("front page").innerText(), { timeout: 60_000 }).toMatch(/HTTP 200/);
  await expect.poll(() => row("database").innerText(), { timeout: 60_000 }).toMatch(/refused/);
  await says(/1 down, 1 unknown, 1 up/);
  expect(await page.locator(".verdict.good").count()).toBe(0);
  const names = await page.getByTestId("checks").locator("tbody th button").allInnerTexts();
  expect(names).toEqual(["database", "daily", "front page"]);
  const up = await row("front page").innerText();
  expect(up).toMatch(/^up[^]*ago[^]*every 500 ms[^]*(ms|µs)[^]*HTTP 200[^]*100 %[^]*none$/);
  expect(await row("database").innerText()).toMatch(/^down[^]*0 %[^]*ago: [^]*refused/);
  expect(await row("daily").innerText()).toMatch(/^unknown[^]*none[^]*unknown/);
  expect(await row("daily").locator(".state.up").count()).toBe(0);
});

test("availability is a bar per check, and says how many attempts failed", async () => {
  const bar = (name: string) => main().locator(".timeline li", { hasText: name }).getByRole("img");
  expect(await bar("front page").getAttribute("aria-label")).toMatch(/unknown .*up /);
  expect(await bar("database").getAttribute("aria-label")).toMatch(/down /);
  await says(/front page\s+0 of \d+ attempts failed, nothing known for/);
  await says(/daily\s+no attempt in this range/);
});

test("a check has its durations by phase, each with its maximum, and a heatmap", async () => {
  await page.getByRole("button", { name: "front page", exact: true }).focus();
  await page.keyboard.press("Enter");
  const detail = page.getByTestId("check-detail");
  await expect.poll(() => detail.innerText(), { timeout: 20_000 }).toMatch(/wait \(first byte\)/);
  const text = await detail.innerText();
  for (const phase of ["total", "connect", "wait (first byte)", "read"])
    expect(text).toContain(phase);
  expect(text).toMatch(/p99\s[^]*max\s/);
  await detail.locator(".heatmap[data-drawn]").waitFor();
  await detail.getByRole("button", { name: "connect" }).click();
  expect(page.url()).toMatch(/phase=connect/);
  const heatmap = detail.getByRole("application");
  await expect.poll(() => heatmap.getAttribute("aria-label")).toMatch(/phase="connect"/);
});

test("the view is accessible on a phone, a desk and a wall, in both themes", async () => {
  expect(await visitor.allViolations("checks")).toEqual([]);
}, 180_000);

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
