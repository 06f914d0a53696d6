/** Loss audit: data flow, gaps and positions of a server, and how a discrepancy looks. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { AuditJson } from "../src/lib/audit";
import { Server } from "./server";
import { Visitor } from "./visitor";

const MINUTE = 60e3;
let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  // Nothing listens on port 1: records wait for the remote.
  const settings = '[[remote]]\nname = "north"\nurl = "http://127.0.0.1:1"\n';
  server = await Server.start(false, settings);
  await server.record("took", [1, 2, 3]);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const main = () => page.locator("main");
const says = (expected: RegExp) =>
  expect.poll(() => main().innerText(), { timeout: 30_000 }).toMatch(expected);
const flow = () => page.getByRole("list", { name: "Data flow" });

test("the data flow has counts of each stage, and positions of subscribers", async () => {
  await visitor.open("audit", {});
  await says(/Nothing is lost/);
  await expect.poll(() => flow().innerText()).toMatch(/journal[^]*values[^]*store[^]*remote north/);
  expect(await flow().innerText()).toMatch(/remote north[^]*records? behind/);
  const subscribers = await page.getByTestId("subscribers").innerText();
  expect(subscribers).toMatch(/store\s+[\d,]+\s+[\d,]+/);
  expect(subscribers).toMatch(/remote north[^]*kept for it/);
  expect(await page.getByTestId("audit").innerText()).toMatch(/journal[^]*store/);
  expect(await page.locator(".verdict.good").count()).toBe(1);
});

/** Answers with the server's audit, changed. */
async function changeAudit(change: (audit: AuditJson) => void): Promise<void> {
  await page.route("**/v1/audit", async (route) => {
    const response = await route.fetch();
    const audit = (await response.json()) as AuditJson;
    change(audit);
    await route.fulfill({ response, json: audit });
  });
}

test("a discrepancy is red, names producer and stage, and says what to do", async () => {
  await changeAudit((audit) => {
    audit.reconciled = false;
    const stage = audit.producers[0]!.stages.find((one) => one.stage === "store")!;
    stage.reconciled = false;
    stage.discrepancy = 7;
    stage.reason = "7 values accepted, but not in the store: bug in topdeck";
  });
  await visitor.open("audit", {});
  await says(/Unreconciled: 1 difference without a reason/);
  const found = await page.getByTestId("discrepancies").innerText();
  expect(found).toMatch(/store: 7 values accepted[^]*topdeck audit --json/);
  expect(await flow().innerText()).toMatch(/7 values fewer than received, unexplained/);
  expect(await page.locator(".verdict.good").count()).toBe(0);
  expect(await visitor.allViolations("audit-discrepancy")).toEqual([]);
  await page.unroute("**/v1/audit");
}, 180_000);

test("gaps are on a time axis, with size and reason, also those of another time", async () => {
  const now = Date.now();
  await page.route("**/v1/status", async (route) => {
    const response = await route.fetch();
    const status = await response.json();
    const gap = (ago: number, lost: number | null) => ({
      start_ns: (now - ago) * 1e6,
      end_ns: (now - ago + MINUTE) * 1e6,
      producer: null,
      lost,
      reason: "the journal was full",
    });
    status.store.gaps = [gap(120 * MINUTE, 12), gap(5 * 1440 * MINUTE, null)];
    await route.fulfill({ response, json: status });
  });
  await visitor.open("audit", {});
  await says(/Data is missing, and the reason of each loss is known/);
  expect(await page.locator(".verdict.good").count()).toBe(0);
  const bar = main().locator(".timeline").getByRole("img");
  expect(await bar.getAttribute("aria-label")).toMatch(
    /^gap 20[^;]*, 12 samples or records lost: the journal was full$/,
  );
  await says(/1 gap outside of this range/);
  const all = page.getByRole("button", { name: "Show all gaps" });
  await all.focus();
  await page.keyboard.press("Enter");
  await expect.poll(() => bar.getAttribute("aria-label")).toMatch(/unknown size[^]*; gap/);
  expect(await visitor.allViolations("audit-gaps")).toEqual([]);
  await page.unroute("**/v1/status");
}, 180_000);

test("the view is accessible on a phone, a desk and a wall, in both themes", async () => {
  await visitor.open("audit", {});
  await says(/Nothing is lost/);
  expect(await visitor.allViolations("audit")).toEqual([]);
}, 180_000);

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
