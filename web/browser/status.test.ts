/** Status: what needs action, and what an operator has acknowledged. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { Visitor } from "./visitor";

let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  server = await Server.start(false);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

test("the first page says that the server rejects new data", async () => {
  await page.route("**/v1/status", async (route) => {
    const response = await route.fetch();
    const status = (await response.json()) as { journal: object };
    const journal = { ...status.journal, full_reason: "2 MB free, 64 MB are needed" };
    await route.fulfill({ response, json: { ...status, journal } });
  });
  await visitor.open("overview", {});
  const box = page.getByTestId("needs-attention");
  await expect
    .poll(() => box.innerText())
    .toMatch(/1 problem of the server: New data is rejected: 2 MB free/);
  for (const theme of ["light", "dark"] as const)
    expect(await visitor.obstacles(390, theme), theme).toEqual([]);
  await page.unroute("**/v1/status");
});

test("acknowledged damage is listed quietly, with times and note, and is no problem", async () => {
  const location = "records 3..4 of the journal";
  const [found_ns, acknowledged_ns] = [Date.UTC(2026, 10, 25) * 1e6, Date.UTC(2026, 10, 26) * 1e6];
  // The server's status with damage that was acknowledged.
  await page.route("**/v1/status", async (route) => {
    const response = await route.fetch();
    const status = (await response.json()) as Record<string, unknown>;
    expect([status["damage"], status["acknowledged_damage"]]).toEqual([[], []]);
    const damage = [
      { location, records: 1, remedy: "repair", since_ns: found_ns, acknowledged: true },
    ];
    const acknowledged_damage = [
      { location, records: 1, found_ns, acknowledged_ns, note: "disk replaced" },
    ];
    await route.fulfill({ response, json: { ...status, damage, acknowledged_damage } });
  });
  await visitor.open("status", {});
  const card = page.getByTestId("acknowledged");
  await card.waitFor();
  expect(await page.getByTestId("problems").count()).toBe(0);
  expect(await page.getByText("Healthy").count()).toBe(1);
  expect(await card.locator("table").isVisible(), "it is folded").toBe(false);
  await card.locator("summary").click();
  const row = await card.locator("tbody tr").innerText();
  expect(row).toMatch(/records 3\.\.4[^]*disk replaced[^]*1[^]*2026-11-25[^]*2026-11-26/);
  expect(await visitor.obstacles(390, "dark")).toEqual([]);
  expect(visitor.errors).toEqual([]);
});
