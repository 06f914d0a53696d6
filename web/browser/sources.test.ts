/** Sources: targets that are scraped, and senders, as an operator wants to see them. */

import { createSocket } from "node:dgram";
import { createServer, type Server as HttpServer } from "node:http";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { Visitor } from "./visitor";

let metrics: HttpServer;
let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  metrics = createServer((_, response) => response.end("a_total 3\nb 4\n"));
  await new Promise<void>((done) => metrics.listen(0, "127.0.0.1", done));
  const address = metrics.address();
  const port = address && typeof address === "object" ? address.port : 0;
  const job = (name: string, port: number) =>
    `[[scrape]]\nname = "${name}"\nurl = "http://127.0.0.1:${port}/metrics"\n` +
    `interval = "1s"\ntimeout = "1s"\n`;
  // Nothing listens on port 1.
  const graphite = '[graphite]\nudp = ["127.0.0.1:0"]\n';
  server = await Server.start(false, graphite + job("app", port) + job("gone", 1));
  await server.record("took", [1, 2, 3]);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
  metrics?.close();
});

interface TargetsJson {
  data: { activeTargets: { scrapePool: string; health: string; lastError: string }[] };
}

test("a target that is down comes first, with the reason", async () => {
  await expect
    .poll(
      async () => {
        const { data } = await server.ask<TargetsJson>("/api/v1/targets");
        return data.activeTargets.map((one) => `${one.scrapePool} ${one.health}`).sort();
      },
      { timeout: 20_000 },
    )
    .toEqual(["app up", "gone down"]);
  await visitor.open("sources", {});
  const rows = page.getByTestId("targets").locator("tbody tr");
  await rows.first().waitFor();
  await expect.poll(() => rows.first().innerText()).toMatch(/^down[^]*gone[^]*refused/);
  const up = await rows.nth(1).innerText();
  expect(up).toMatch(/^up[^]*app[^]*\b2\b[^]*none$/);
});

test("a Graphite line that is refused is shown with the reason and its sender", async () => {
  const { listeners } = await server.ask<{ listeners: { addresses: string[] }[] }>("/v1/status");
  const address = /127\.0\.0\.1:(\d+)/.exec(listeners[0]!.addresses.join());
  const socket = createSocket("udp4");
  const lines = "carts.open 12 1794906565\ncarts.open=12";
  await new Promise<void>((done) =>
    socket.send(lines, Number(address![1]), "127.0.0.1", () => done()),
  );
  const sender = `127.0.0.1:${socket.address().port}`;
  socket.close();
  await visitor.open("sources", {});
  const rejected = page.getByRole("region", { name: "Rejected lines of graphite" });
  await rejected.waitFor({ timeout: 20_000 });
  const text = await rejected.innerText();
  expect(text).toContain("1 line rejected");
  expect(text).toContain(sender);
  expect(text).toContain('expected path value timestamp, found "carts.open=12"');
});

test("a source that stopped sending is red and comes first", async () => {
  interface StatusJson {
    now_ns: number;
    sources: { name: string; state: string; last_ns: number; interval_ns: number | null }[];
  }
  // The server would have to learn for 20 s how often it sends, and then wait for 30 s.
  await page.route("**/v1/status*", async (route) => {
    const response = await route.fetch();
    const json = (await response.json()) as StatusJson;
    const sender = json.sources.find((one) => one.name.startsWith("record"))!;
    const last = json.now_ns - 2 * 3_600e9;
    Object.assign(sender, { state: "absent", last_ns: last, interval_ns: 10e9 });
    await route.fulfill({ response, json });
  });
  await visitor.open("sources", {});
  const first = page.getByTestId("senders").locator("tbody tr").first();
  await expect.poll(() => first.innerText(), { timeout: 20_000 }).toMatch(/^absent[^]*2 h ago/);
  const [background, red] = await visitor.backgrounds(first, "--alert-2");
  expect(background).toBe(red);
  await page.unroute("**/v1/status*");
});

test("senders have a rate and a last batch, and the page works on a phone", async () => {
  const sender = page.getByTestId("senders").locator("tr", { hasText: "scrape app" });
  await expect
    .poll(() => sender.innerText(), { timeout: 30_000 })
    .toMatch(/(sending|unknown)[^]*\d m?s ago/);
  await expect.poll(() => sender.innerText(), { timeout: 30_000 }).not.toContain("…");
  expect(await visitor.obstacles(390, "dark")).toEqual([]);
});
