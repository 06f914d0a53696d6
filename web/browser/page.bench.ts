/**
 * Measurements for docs/benchmarks.md, printed and never asserted: `npm --prefix web run bench`.
 * `TOPDECK_BENCH_SECONDS` is the duration of the live heatmap: default 20, 600 for the heap.
 */

import { chromium, type Browser } from "playwright-core";
import { afterAll, beforeAll, test } from "vitest";
import { createServer, type ViteDevServer } from "vite";

import type { Measured } from "./bench.page";
import { Server } from "./server";
import { traffic } from "./traffic";

const seconds = Number(process.env["TOPDECK_BENCH_SECONDS"] ?? "20");
let browser: Browser;

beforeAll(async () => {
  const args = [
    "--no-sandbox",
    "--disable-gpu",
    "--js-flags=--expose-gc",
    "--enable-precise-memory-info",
  ];
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args });
});
afterAll(async () => browser?.close());

function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(Math.ceil(q * sorted.length), sorted.length) - 1] ?? NaN;
}

test.each([[[]], [["p50", "p99"]]])(
  "1,000 × 300 cells, live, with the greatest value and the lines %j",
  async (lines) => {
    const vite: ViteDevServer = await createServer({
      root: new URL("..", import.meta.url).pathname,
      server: { port: 0, host: "127.0.0.1" },
      logLevel: "error",
    });
    await vite.listen();
    const page = await browser.newPage({ viewport: { width: 1640, height: 700 } });
    const port = (vite.httpServer!.address() as { port: number }).port;
    await page.goto(`http://127.0.0.1:${port}/browser/bench.html`);
    await page.locator("body[data-ready]").waitFor({ state: "attached" });
    const empty = (seconds: number) =>
      page.evaluate((seconds) => window.empty(seconds), seconds) as Promise<Measured>;
    const live = (seconds: number) =>
      page.evaluate(([seconds, lines]) => window.live(seconds, lines), [
        seconds,
        lines,
      ] as const) as Promise<Measured>;
    const rounds: { empty: number; live: number }[] = [];
    const updates: number[] = [];
    let heap: [number, number] = [0, 0];
    for (let round = 0; round < 3; round++) {
      const before = await empty(5);
      const measured = await live(round === 0 ? seconds : 10);
      if (round === 0) heap = measured.heap;
      rounds.push({
        empty: before.frames / before.seconds,
        live: measured.frames / measured.seconds,
      });
      updates.push(...measured.updates);
    }
    const median = (of: (round: { empty: number; live: number }) => number) =>
      quantile(rounds.map(of), 0.5);
    console.log(
      `script per update: p50 ${quantile(updates, 0.5).toFixed(2)} ms, ` +
        `p95 ${quantile(updates, 0.95).toFixed(2)} ms, ` +
        `max ${Math.max(...updates).toFixed(1)} ms, ${updates.length} updates`,
    );
    console.log(
      `frames/s: ${median((one) => one.live).toFixed(1)}, ` +
        `empty page ${median((one) => one.empty).toFixed(1)}, ` +
        `ratio ${median((one) => one.live / one.empty).toFixed(2)}`,
    );
    console.log(
      `heap: ${(heap[0] / 1e6).toFixed(1)} MB before, ` +
        `${(heap[1] / 1e6).toFixed(1)} MB after ${seconds} s`,
    );
    await page.close();
    await vite.close();
  },
);

test("a week of 10 s intervals, from the click to the picture", async () => {
  const server = await Server.start(false);
  const end = Math.floor(Date.now() / 60e3) * 60e3;
  await server.send("latency", traffic({ end, hours: 168, interval: 10e3, requests: 4 }));
  // Downsampled as after a night; the first query reads the journal.
  await server.ask("/v1/histogram", { selector: "latency", from: "-1w", to: "now" });
  const page = await browser.newPage({ viewport: { width: 1360, height: 900 } });
  const selector = encodeURIComponent("latency");
  await page.goto(`${server.url}/#/explore?from=-1h&selector=${selector}&to=now`);
  await page.locator(".heatmap[data-drawn]").waitFor();
  const times: number[] = [];
  for (let round = 0; round < 7; round++) {
    await page.getByRole("button", { name: "1h", exact: true }).click();
    await page.waitForTimeout(1_500);
    times.push(
      await page.evaluate(async () => {
        const host = document.querySelector<HTMLElement>(".heatmap")!;
        const before = host.dataset["drawn"];
        const button = [...document.querySelectorAll("button")].find(
          (one) => one.textContent?.trim() === "7d",
        )!;
        const began = performance.now();
        button.click();
        await new Promise<void>((done) => {
          // A week has 168 times the values of the last hour; fewer, as the last hour moves on.
          const look = () =>
            Number(host.dataset["drawn"]) > 100 * Number(before)
              ? done()
              : requestAnimationFrame(look);
          look();
        });
        await new Promise(requestAnimationFrame);
        return performance.now() - began;
      }),
    );
  }
  console.log(
    `a week, from click to drawn frame: p50 ${quantile(times, 0.5).toFixed(0)} ms, ` +
      `max ${Math.max(...times).toFixed(0)} ms, ${times.length} times`,
  );
  await page.close();
  await server.stop();
});
