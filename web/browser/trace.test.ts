/** Waterfalls of traces: keys, sizes, problems, and a trace that is elsewhere. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { Visitor } from "./visitor";

const CHECKOUT = "0af7651916cd43dd8448eb211c80319c";
const [HUGE, ELSEWHERE] = ["1".repeat(32), "2".repeat(32)];
const SPANS = 10_000;

let server: Server;
let visitor: Visitor;
let page: Page;

/** A tree of spans, each with up to seven children, of 15 services. */
function hugeTrace(): object {
  const spans = Array.from({ length: SPANS }, (_, at) => ({
    spanId: `s${at + 1}`,
    parentSpanId: at === 0 ? "" : `s${Math.floor((at - 1) / 7) + 1}`,
    name: `operation ${at}`,
    startTimeUnixNano: `${1_000_000 + at * 100}000`,
    endTimeUnixNano: `${3_000_000 - at * 50}000`,
  }));
  const resourceSpans = Array.from({ length: 15 }, (_, service) => ({
    resource: { attributes: [{ key: "service.name", value: { stringValue: `s-${service}` } }] },
    scopeSpans: [{ spans: spans.filter((_, at) => at % 15 === service) }],
  }));
  return { trace: { resourceSpans }, status: "COMPLETE", message: "" };
}

beforeAll(async () => {
  const settings = '[exemplars]\ntrace_url = "https://traces.example/{trace_id}"\n';
  server = await Server.start(false, settings);
  await server.record("pay", [1, 2]);
  visitor = await Visitor.start(server);
  page = visitor.page;
  const path = resolve(import.meta.dirname, "../../testdata/traces/checkout.json");
  const bodies: Record<string, [number, object]> = {
    [CHECKOUT]: [200, JSON.parse(readFileSync(path, "utf8")) as object],
    [HUGE]: [200, hugeTrace()],
    [ELSEWHERE]: [404, { error: `trace ${ELSEWHERE} is not stored: no span of it was received` }],
  };
  await page.route(/\/api\/v2\/traces\//, (route) => {
    const [status, json] = bodies[new URL(route.request().url()).pathname.slice(-32)]!;
    return route.fulfill({ status, json });
  });
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const tree = () => page.getByRole("tree");
const rows = () => page.getByRole("treeitem");
const details = () => page.getByRole("region", { name: "Details of the span" });
const selected = async () => {
  const text = await page.locator("[role=treeitem][aria-selected=true]").textContent();
  return text?.replace(/\s+/g, " ");
};

async function open(trace: string, settings: Record<string, string> = {}): Promise<void> {
  await visitor.open("trace", { trace, ...settings, v: "2" });
  await rows().first().waitFor();
}

test("keys move, collapse, open details, and go back to the view before", async () => {
  await open(CHECKOUT, { selector: "pay", from: "-15m" });
  expect(await rows().count()).toBe(11);
  await expect.poll(selected).toMatch(/GET \/checkout frontend ?120 ms, self 10 ms/);
  const keys = async (...names: string[]) => {
    for (const name of names) await page.keyboard.press(name);
  };
  await keys("ArrowDown", "ArrowDown");
  await expect.poll(selected).toMatch(/POST \/orders shop.*failed/);
  await keys("ArrowLeft");
  await expect.poll(() => rows().count()).toBe(6);
  expect(await rows().nth(2).getAttribute("aria-expanded")).toBe("false");
  await keys("ArrowRight", "ArrowRight");
  await expect.poll(selected).toMatch(/SELECT orders shop ?20 ms, self 20 ms/);
  // From a leaf to its parent.
  await keys("ArrowLeft");
  await expect.poll(selected).toMatch(/POST \/orders shop/);
  await keys("End");
  await expect.poll(selected).toMatch(/loop b audit/);
  await keys("Home", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter");
  await expect
    .poll(() => details().innerText())
    .toMatch(/Failed\.[^]*self time\s+2 ms[^]*exception[^]*PaymentDeclined[^]*shop-1/);
  // Details follow the selection.
  await keys("ArrowDown");
  await expect.poll(() => details().innerText()).toMatch(/begins 2 ms before its parent/);
  await keys("Escape");
  await expect.poll(() => details().count()).toBe(0);
  await keys("Escape");
  await expect.poll(() => page.url()).toMatch(/#\/explore\?from=-15m&selector=pay&v=2$/);
  await page.goBack();
  await rows().first().waitFor();
});

test("problems have a shape and a number, and a click goes to the next one", async () => {
  await open(CHECKOUT);
  const main = await page.locator("main").innerText();
  expect(main).toMatch(/Partial: 1 span arrived after/);
  expect(main).toMatch(/1 span received more than once/);
  expect(main).toMatch(/✕ 2 spans: failed[^]*\? 1 span: parent not received/);
  await page.getByRole("button", { name: /1 span: its own ancestor/ }).click();
  await expect.poll(selected).toMatch(/loop a audit/);
  await rows().filter({ hasText: "send audit" }).click();
  await details().getByRole("link", { name: "1bf7651916cd43dd8448eb211c80319c" }).waitFor();
});

test("a waterfall and its details fit every screen, and axe finds nothing", async () => {
  await open(CHECKOUT);
  await rows().nth(2).click();
  await details().waitFor();
  const isShown = (of: string) => of === "1360-light";
  expect((await visitor.allViolations("trace", isShown)).join("; ")).toBe("");
});

test("of 10,000 spans only those on the screen are elements", async () => {
  await open(HUGE);
  expect(await page.locator("main").innerText()).toContain("10,000 spans of 15 services");
  const isSmall = async () => expect(await rows().count()).toBeLessThan(80);
  await isSmall();
  await page.keyboard.press("End");
  await expect.poll(selected).toMatch(/operation/);
  await isSmall();
  const last = page.locator(`#span-${SPANS - 1}`);
  expect(await last.getAttribute("aria-selected")).toBe("true");
  const isInside = () =>
    last.evaluate((row) => {
      const [inner, outer] = [row, row.closest("[role=tree]")!].map((one) =>
        one.getBoundingClientRect(),
      );
      return inner!.bottom <= outer!.bottom + 1 && inner!.top >= outer!.top;
    });
  expect(await isInside()).toBe(true);
  // The root alone.
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowLeft");
  await expect.poll(() => rows().count()).toBe(1);
  await tree().press("ArrowRight");
  await expect.poll(() => rows().count()).toBeGreaterThan(10);
});

test("a trace that is elsewhere is said so, with a link", async () => {
  await visitor.open("trace", { trace: ELSEWHERE, v: "2" });
  await expect
    .poll(() => page.getByRole("alert").innerText())
    .toMatch(/^Trace elsewhere: trace 2+ is not stored/);
  const link = page.getByRole("link", { name: "Open in the external UI" });
  await expect.poll(() => link.getAttribute("href")).toBe(`https://traces.example/${ELSEWHERE}`);
  expect((await visitor.allViolations("elsewhere")).join("; ")).toBe("");
  await visitor.open("trace", {});
  await expect.poll(() => page.locator("main").innerText()).toMatch(/no trace id/);
});

test("no errors, and no requests to other hosts", () => {
  const errors = visitor.errors.filter((one) => !/404.*api\/v2\/traces\/2+$/.test(one));
  expect(errors).toEqual([]);
});
