/** Operations from packets: services, statements, their heatmaps, and loss. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server, type Point } from "./server";
import { Visitor } from "./visitor";

const MINUTE = 60e3;
const end = Math.floor(Date.now() / MINUTE) * MINUTE;
const start = end - 10 * MINUTE;
const range = { from: new Date(start).toISOString(), to: new Date(end).toISOString() };

let server: Server;
let visitor: Visitor;
let page: Page;

/** A statement with the same latencies, in seconds, each minute. */
function points(labels: Record<string, string>, values: readonly number[]): Point[] {
  const minutes = Array.from({ length: 10 }, (_, at) => start + at * MINUTE);
  return minutes.map((from) => ({
    start: from,
    end: from + MINUTE,
    labels: { host: "web-1", protocol: "postgres", ...labels },
    values,
  }));
}

/** A counter of the service `shop` that started with the range. */
function counter(name: string, labels: Record<string, string>, value: number): object {
  const attributes = Object.entries({ service: "shop", protocol: "postgres", ...labels });
  const times = [start + MINUTE, end];
  return {
    name,
    sum: {
      aggregationTemporality: 2,
      isMonotonic: true,
      dataPoints: times.map((time, at) => ({
        startTimeUnixNano: `${start}000000`,
        timeUnixNano: `${time}000000`,
        attributes: attributes.map(([key, text]) => ({ key, value: { stringValue: text } })),
        asDouble: at === 0 ? 0 : value,
      })),
    },
  };
}

beforeAll(async () => {
  server = await Server.start(false);
  const select = { service: "shop", verb: "Query", statement: "select * from t where id = $1" };
  const report = { service: "shop", verb: "Query", statement: "select sum(x) from t" };
  await server.send("wire_latency", [
    ...points({ ...select, outcome: "ok" }, [0.001, 0.002, 0.001]),
    ...points({ ...select, outcome: "error", error: "22" }, [0.001]),
    ...points({ ...report, outcome: "ok" }, [2]),
    ...points({ service: "cache", verb: "GET", outcome: "ok" }, [0.0001]),
  ]);
  const metrics = [counter("wire_not_measured_requests_total", { reason: "gap" }, 7)];
  await server.post(
    "/v1/metrics",
    JSON.stringify({ resourceMetrics: [{ scopeMetrics: [{ metrics }] }] }),
  );
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const rows = async (table: string) => {
  const found = page.getByTestId(table).locator("tbody tr");
  await expect.poll(() => found.count(), { timeout: 30_000 }).toBe(2);
  return found.allInnerTexts();
};

test("services have operations, errors and loss; the one with the most time is open", async () => {
  await visitor.open("wire", range);
  const [shop, cache] = await rows("services");
  expect(shop).toMatch(/^shop\s+postgres\s+50 \(50–57\)[^]*2 s[^]*10\s+0\s+0\s+–\s+7$/);
  expect(cache).toMatch(/^cache\s+postgres\s+10\s[^]*0\s+0\s+0\s+–\s+0$/);
  const latency = page.getByTestId("latency");
  await expect
    .poll(() => latency.innerText(), { timeout: 30_000 })
    .toMatch(/Hatched: 7 requests of shop were not measured \(7 gap\)/);
  await expect.poll(() => latency.locator(".lossy .heatmap").count(), { timeout: 30_000 }).toBe(1);
});

test("statements are by total time, or by requests above the threshold", async () => {
  await visitor.open("wire", range);
  expect((await rows("statements"))[0]).toMatch(/^Query select sum\(x\) from t/);
  await visitor.open("wire", { ...range, order: "above", threshold: "500us" });
  await expect
    .poll(async () => (await rows("statements"))[0], { timeout: 30_000 })
    .toMatch(/^Query select \* from t where id = \$1\s+40 \(40–47\)[^]*40\s+10$/);
});

test("a statement opens its heatmap, and the address has it", async () => {
  await visitor.open("wire", range);
  await rows("statements");
  await page.getByRole("button", { name: "Query select sum(x) from t" }).click();
  const heatmap = page.getByTestId("latency").locator(".heatmap");
  await expect
    .poll(() => heatmap.getAttribute("aria-label"), { timeout: 30_000 })
    .toMatch(/statement="select sum\(x\) from t".*10 values/);
  expect(page.url()).toContain("statement=Query");
  await page.getByRole("button", { name: "All statements" }).click();
  await expect
    .poll(() => heatmap.getAttribute("aria-label"), { timeout: 30_000 })
    .toMatch(/wire_latency\{service="shop"\}: 50 values/);
});

test("a service without loss has no hatching", async () => {
  await visitor.open("wire", { ...range, service: "cache" });
  const latency = page.getByTestId("latency");
  await expect.poll(() => latency.locator(".heatmap").count(), { timeout: 30_000 }).toBe(1);
  expect(await latency.locator(".lossy").count()).toBe(0);
});
