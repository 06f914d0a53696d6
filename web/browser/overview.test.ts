/** The overview, the first page, on a real server with a service that has become slow. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server, type Point } from "./server";
import { Visitor } from "./visitor";

const MINUTE = 60e3;

let server: Server;
let visitor: Visitor;
let page: Page;
const end = Math.floor(Date.now() / MINUTE) * MINUTE;

/** An hour of requests: 100 of 12 ms per minute, and in the last four minutes 30 of 900 ms. */
function hour(service: string, isSlow: boolean): Point[] {
  return Array.from({ length: 60 }, (_, at) => {
    const isNow = isSlow && at >= 56;
    return {
      start: end - (60 - at) * MINUTE,
      end: end - (59 - at) * MINUTE,
      labels: { service },
      values: [...Array(100).fill(0.012), ...Array(isNow ? 30 : 0).fill(0.9)] as number[],
    };
  });
}

beforeAll(async () => {
  // Metrics of other programs on this host would be rows too.
  server = await Server.start("shm_metrics = false\n");
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const services = () => page.getByLabel("Services", { exact: true });
const rows = () => services().getByTestId("overview-row");
const row = (name: string) => rows().filter({ has: page.getByRole("link", { name, exact: true }) });
const openPage = async () => {
  await page.goto("about:blank");
  await page.goto(server.url);
};

test("an empty install shows its host, and each way to send data", async () => {
  await openPage();
  await page.getByText("No data from your services yet").waitFor();
  const lines = await page.locator(".commands code").allInnerTexts();
  const ways = [
    "curl -d",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "remote_write",
    "[[scrape]]",
    "|ms' >/dev/udp/127.0.0.1/8125",
    "/dev/tcp/127.0.0.1/2003",
  ];
  expect(lines).toHaveLength(ways.length);
  for (const [at, expected] of ways.entries()) expect(lines[at]).toContain(expected);
  await page.getByText(/^This host/).waitFor();
  await expect
    .poll(() => page.locator("details[open] > summary").innerText())
    .toMatch(/^This host/);
  for (const theme of ["light", "dark"] as const) {
    expect(await visitor.obstacles(390, theme), theme).toEqual([]);
  }
});

test("the first page says which service is slow, and how many requests", async () => {
  await page.setViewportSize({ width: 1360, height: 900 });
  await server.send("latency", [...hour("cart", true), ...hour("search", false)]);
  await server.send("stopped", [{ ...hour("batch", false)[0]!, end: end - 58 * MINUTE }]);
  await openPage();
  await page.getByRole("link", { name: "cart", exact: true }).waitFor();
  await row("cart").getByRole("button").click();
  await row("cart").getByRole("textbox").fill("250ms");
  await page.keyboard.press("Enter");
  await expect.poll(() => row("cart").getAttribute("class")).toContain("affected");
  // The slow service comes first, with the count of the server.
  await expect.poll(() => rows().first().innerText()).toContain("cart");
  const answer = await server.ask<{ rows: { above_now: { estimate: number } }[] }>("/v1/overview", {
    threshold: "latency=250ms",
  });
  const above = answer.rows[0]!.above_now.estimate;
  expect(above).toBeGreaterThanOrEqual(60);
  await expect
    .poll(() => services().getByTestId("overview-summary").innerText())
    .toMatch(/^1 of 3 affected\. Worst: cart \(latency\), \d+ of \d+ requests above 250 ms/);
  // Since when, how sure, and what next.
  await expect
    .poll(() => services().getByTestId("overview-now").innerText())
    .toMatch(/^Since about \d\d:\d\d\. .*× the expected 1\s% \(no SLO\); not chance .* Next: /);
  await expect.poll(() => row("cart").innerText()).toContain("yours");
  await expect.poll(() => row("search").getAttribute("class")).toContain("usual");
  await expect.poll(() => row("search").innerText()).toContain("history too short");
  await visitor.screenshot("overview-1360-light");
});

test("a service without recent data is unknown, and never green", async () => {
  const stopped = row("batch");
  await expect.poll(() => stopped.getAttribute("class")).toContain("unknown");
  await expect.poll(() => stopped.innerText()).toMatch(/unknown\s+no data for \d+ min/);
});

test("nothing overflows, and axe finds nothing, from phones to wall displays", async () => {
  for (const width of [390, 1360, 2560]) {
    for (const theme of ["light", "dark"] as const) {
      expect(await visitor.violations(width, theme), `${width} px, ${theme}`).toEqual([]);
      await visitor.screenshot(`overview-${width}-${theme}`);
    }
  }
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
});

test("a threshold without a unit asks for one, by keys too", async () => {
  await openPage();
  await row("cart").getByRole("button", { name: "change the threshold" }).click();
  const box = row("cart").getByRole("textbox");
  await box.fill("300");
  await box.press("Enter");
  await row("cart").getByRole("alert").filter({ hasText: "300 what?" }).waitFor();
  // The values are in s: the buttons are 300 s, 300 ms, 300 us.
  await box.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect.poll(() => row("cart").innerText()).toMatch(/300(\.0)? ms/);
  await row("cart").getByRole("button", { name: "change the threshold" }).click();
  await box.fill("250ms");
  await box.press("Enter");
  await expect.poll(() => row("cart").innerText()).toMatch(/250(\.0)? ms/);
});

test("keys go from row to row, and Enter opens the heatmap with the threshold", async () => {
  await openPage();
  await page.getByRole("link", { name: "cart", exact: true }).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await expect.poll(() => page.evaluate(() => document.activeElement?.textContent)).toBe("cart");
  await page.keyboard.press("Enter");
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(page.url()).toContain("threshold=250ms");
  await expect
    .poll(() => page.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
    .toMatch(/^120 of \d,\d{3} above 250 ms/);
});

test("a row opens the heatmap where its data is", async () => {
  await page.goBack();
  await row("batch").getByRole("link", { name: "batch", exact: true }).click();
  await page.locator(".heatmap[data-drawn]").waitFor();
  expect(await visitor.drawn()).toBe(100);
});

test("counters and gauges have tabs, and topdeck's own metrics are folded", async () => {
  await openPage();
  expect(await page.getByText("topdeck_query_duration").count()).toBe(0);
  await page.getByText("topdeck's metrics of itself").click();
  await page.getByText("topdeck_query_duration").first().waitFor();
  await page.getByRole("button", { name: "Gauges" }).click();
  await page
    .getByRole("link", { name: /^topdeck_|^host_/ })
    .first()
    .waitFor();
  await page.getByLabel("Filter").fill("no such metric");
  await page.getByText(/^None of .* gauges contains “no such metric”/).waitFor();
});

// Three hours after an incident every row was green, and the page did not tell of it.
test("an incident of today is on the first page, with its worst hour by label", async () => {
  const now = await server.ask<{ now_ns: number }>("/v1/overview", {});
  const today = new Date(now.now_ns / 1e6).setHours(0, 0, 0, 0);
  // Before two o'clock there is no earlier hour of today.
  if (now.now_ns / 1e6 - today < 2 * 60 * MINUTE) return;
  const hour = today + Math.floor((now.now_ns / 1e6 - today) / 3_600e3 - 1) * 3_600e3;
  const slow = (at: number, host: string, value: number, count: number): Point => ({
    start: hour + at * MINUTE,
    end: hour + (at + 1) * MINUTE,
    labels: { service: "payment", host },
    values: Array(count).fill(value) as number[],
  });
  const minutes = Array.from({ length: 40 }, (_, at) => at);
  await server.send("latency", [
    ...minutes.map((at) => slow(at, "pay-1", 0.02, 100)),
    ...minutes.map((at) => slow(at, "pay-2", 0.9, 20)),
  ]);
  await openPage();
  await row("payment").waitFor();
  await expect
    .poll(() => services().getByTestId("overview-today").innerText(), { timeout: 30_000 })
    .toMatch(/payment \(latency\), 800 of 4,800 .* above 250 ms from .*: 16\.67 %, 16\.7\s×/);
  await expect.poll(() => row("payment").innerText()).toContain("48 expected");
  // Its row was as green as those that the headline does not name.
  expect(await row("payment").getAttribute("class")).toContain("earlier");
  expect(await row("payment").innerText()).toContain("16.7×");
  const headline = services().getByTestId("overview-today");
  // The same hours have the same count.
  await headline.getByRole("link", { name: "the same hours in Explore" }).click();
  await expect
    .poll(() => page.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
    .toMatch(/^800 of 4,800 above 250 ms/);
  await page.goBack();
  await headline.getByRole("link", { name: "which labels?" }).click();
  await page.locator(".heatmap[data-drawn]").waitFor();
  await expect
    .poll(() => page.getByLabel("Breakdown by label").innerText(), { timeout: 20_000 })
    .toMatch(/pay-2\s+100 % inside/);
});

test("a row with sessions says how many of them had a slow request", async () => {
  const now = Math.floor(Date.now() / MINUTE) * MINUTE;
  const of = (session: string, value: number): Point => ({
    start: now - MINUTE,
    end: now,
    labels: { service: "login", session },
    values: [0.012, value],
  });
  await server.send("latency", [of("ann", 0.02), of("ben", 0.9), of("cem", 0.9)]);
  await openPage();
  await expect
    .poll(() => row("login").locator("td.now").innerText(), { timeout: 30_000 })
    .toContain("2 sessions");
  await expect.poll(() => row("login").locator("td.today").innerText()).toMatch(/\d sessions?/);
  expect(await row("search").innerText()).not.toContain("session");
});

// Its picture was that of a service without requests.
test("a job of a minute per hour has data where it ran, and none elsewhere", async () => {
  await server.send("latency", hour("job", false).slice(40, 41));
  await openPage();
  await expect
    .poll(() => row("job").getByRole("img").getAttribute("aria-label"), { timeout: 30_000 })
    .toMatch(/, 58 minutes without data/);
});
