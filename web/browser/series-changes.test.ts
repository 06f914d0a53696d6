/** Changes of stored series on a running server: each shows what would change first. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { Visitor } from "./visitor";

let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  server = await Server.start(false);
  await server.record("checkout", [1, 2, 3]);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

interface VectorJson {
  data: { result: unknown[] };
}

const current = async () => {
  const { data } = await server.ask<VectorJson>("/api/v1/query", { query: "checkout" });
  return data.result.length;
};

const count = async () =>
  (await server.ask<{ count: number }>("/v1/histogram", { selector: "checkout", from: "-15m" }))
    .count;

// A value without a unit beside others in ms made the metric unanswerable.
test("a series without a unit is left out, and joins the others after a rename", async () => {
  await server.record("pay", [10, 20, 30]);
  await server.post("/v1/record?metric=pay&label.host=b", "25000000");
  const paid = async () => {
    const settings = { selector: "pay", from: "-15m" };
    return (await server.ask<{ count: number }>("/v1/histogram", settings)).count;
  };
  await expect.poll(paid).toBe(3);
  await visitor.open("explore", { selector: "pay", from: "-15m", to: "now" });
  const leftOut = page.locator(".left-out");
  await leftOut.waitFor({ timeout: 20_000 });
  expect(await leftOut.innerText()).toContain("1 series without a unit is left out.");
  await leftOut.getByRole("link").click();
  await expect.poll(() => decodeURIComponent(page.url())).toContain('__unit=""');
  await expect.poll(() => visitor.drawn(), { timeout: 20_000 }).toBe(1);
  await page.getByText("Delete, rename or retire these series").click();
  await page.getByRole("button", { name: "Rename …" }).click();
  const plan = page.getByRole("group", { name: "Rename series" });
  await plan.getByLabel("Unit").fill("ns");
  await plan.getByRole("button", { name: "Show what would change" }).click();
  await expect.poll(() => plan.innerText()).toContain("This renames 1 sample of 1 series");
  expect(await paid(), "nothing changed yet").toBe(3);
  await plan.getByRole("button", { name: "Rename 1 series" }).click();
  await expect.poll(paid, { timeout: 20_000 }).toBe(4);
  await visitor.open("explore", { selector: "pay", from: "-15m", to: "now" });
  await expect.poll(() => visitor.drawn(), { timeout: 20_000 }).toBe(4);
  expect(await leftOut.count()).toBe(0);
});

test("a retired series is no longer current and keeps its values until it is deleted", async () => {
  await expect.poll(current).toBe(1);
  await visitor.open("explore", { selector: "checkout", from: "-15m", to: "now" });
  await page.locator(".heatmap[data-drawn]").waitFor();
  await page.getByText("Delete, rename or retire these series").click();
  await page.getByRole("button", { name: "Retire …" }).click();
  const plan = page.getByRole("group", { name: "Retire series" });
  await expect.poll(() => plan.innerText()).toContain("This ends 1 series");
  expect(await current(), "nothing changed yet").toBe(1);
  await plan.getByRole("button", { name: "Retire 1 series" }).click();
  await expect.poll(() => page.locator(".manage").innerText()).toContain("Retired 1 series.");
  await expect.poll(current).toBe(0);
  expect(await count()).toBe(3);
  await page.getByRole("button", { name: "Retire …" }).click();
  await expect.poll(() => plan.innerText()).toContain("is current");
  expect(await visitor.obstacles(390, "dark")).toEqual([]);
  // Its marker is a series of numbers with the same name.
  await page.getByRole("button", { name: "Delete …" }).click();
  const deletion = page.getByRole("group", { name: "Delete series" });
  await expect.poll(() => deletion.innerText()).toMatch(/This deletes \d+ samples? of 2 series/);
  await page.getByRole("button", { name: "Delete 2 series" }).click();
  await expect.poll(() => page.locator(".manage").innerText()).toContain("samples of 2 series.");
  // The rejection of the second attempt is in the console, and the answer for a deleted metric.
  expect(visitor.errors.filter((one) => !/status of 40[04]/.test(one))).toEqual([]);
});
