/** Load runs: two runs of the load generator, their validity, and their comparison. */

import { createServer, type Server as HttpServer } from "node:http";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { Visitor } from "./visitor";

/** The load generator has no verdict of its own if it ended otherwise. */
const VALID = 0;
const INVALID = 3;

let target: HttpServer;
let server: Server;
let visitor: Visitor;
let page: Page;
/** Exit status of each run. */
const statuses = new Map<string, number>();

async function runLoad(name: string, delayMs: number): Promise<void> {
  target = createServer((_, response) => setTimeout(() => response.end("ok"), delayMs));
  await new Promise<void>((done) => target.listen(0, "127.0.0.1", done));
  const address = target.address();
  const port = address && typeof address === "object" ? address.port : 0;
  const { status, output } = await server.run([
    "load",
    `http://127.0.0.1:${port}/`,
    "--no-calibration",
    "--quiet",
    ...["--rate", "50", "--duration", "3s"],
    ...["--push", server.url, "--run-name", name],
  ]);
  await new Promise((done) => target.close(done));
  expect([VALID, INVALID], output).toContain(status);
  expect(output).toMatch(/pushed to [^]*: all [^]* and others/);
  statuses.set(name, status);
}

beforeAll(async () => {
  server = await Server.start(false);
  await runLoad("before", 5);
  await runLoad("after", 60);
  // A run of an earlier generator, or one that was aborted, has no validity.
  const labels = "label.run=aborted&label.target=x&label.protocol=http";
  await server.post(`/v1/record?metric=load_response_time&unit=ns&${labels}`, "5000\n6000");
  visitor = await Visitor.start(server);
  page = visitor.page;
}, 120_000);

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const main = () => page.locator("main");
const row = (name: string) =>
  page
    .getByTestId("load-runs")
    .locator("tbody tr", { has: page.getByRole("button", { name, exact: true }) });

test("runs are listed, the latest first, with validity and the maximum", async () => {
  await visitor.open("load", { from: "-1h" });
  await expect.poll(() => row("before").count(), { timeout: 20_000 }).toBe(1);
  const names = await page.getByTestId("load-runs").locator("tbody th button").allInnerTexts();
  expect(names.indexOf("after")).toBeLessThan(names.indexOf("before"));
  for (const name of ["before", "after"]) {
    const text = await row(name).innerText();
    expect(text).toMatch(statuses.get(name) === INVALID ? /invalid/ : /\bvalid/);
    expect(text).toMatch(/3 s[^]*50[^]*\d+ of 1\d\d \([\d.]+ %\)[^]*ms[^]*ms[^]*ms/);
  }
});

test("a run has its times against the schedule, and requests without a result", async () => {
  await row("before").getByRole("button").click();
  const detail = page.getByTestId("load-run");
  await expect.poll(() => detail.innerText()).toMatch(/Latency against the schedule/);
  const text = await detail.innerText();
  expect(text).toMatch(/response time, from the schedule[^]*service time, from sending/);
  expect(text).toMatch(/p99\s[^]*max\s/);
  expect(text).toMatch(/failed\s+0 requests/);
  const verdict = await page.getByTestId("validity").getAttribute("class");
  expect(verdict).toContain(statuses.get("before") === INVALID ? "invalid" : "valid");
  await detail.locator(".heatmap[data-drawn]").waitFor();
  await expect.poll(() => detail.innerText()).toMatch(/scheduled[^]*completed/);
  await detail.getByRole("button", { name: /service time/ }).click();
  expect(page.url()).toMatch(/time=service/);
});

test("two runs are compared in a sentence, by keys", async () => {
  const select = page.getByRole("combobox", { name: /A is this run/ });
  await select.focus();
  await select.selectOption({
    label: (await select.locator("option").allInnerTexts()).find((one) => /^after/.test(one))!,
  });
  const sentence = page.getByTestId("run-comparison");
  await expect.poll(() => sentence.innerText(), { timeout: 20_000 }).toMatch(/p50 [^]* against/);
  // They have different ports.
  const warnings = await page.getByTestId("comparison-warnings").innerText();
  expect(warnings).toContain("the targets differ");
  await main()
    .getByRole("link", { name: /Distributions, Q–Q plot/ })
    .click();
  await expect.poll(() => main().innerText(), { timeout: 20_000 }).toMatch(/Difference over time/);
});

test("the difference of two runs has a value under the pointer, and by keys", async () => {
  const chart = main().locator(".difference");
  await chart.scrollIntoViewIfNeeded();
  const box = (await chart.locator(".u-over").boundingBox())!;
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  const readout = page.getByTestId("difference-readout");
  await expect.poll(() => readout.innerText()).toMatch(/20\d\d-[^]* to [^]*A [^]*, B /);
  await page.mouse.move(0, 0);
  await expect.poll(() => readout.count()).toBe(0);
  await chart.focus();
  await page.keyboard.press("ArrowRight");
  await expect.poll(() => readout.innerText()).toMatch(/A [^]*, B /);
});

test("a run of unknown validity is not green", async () => {
  await visitor.open("load", { from: "-1h" });
  await expect.poll(() => row("aborted").count(), { timeout: 20_000 }).toBe(1);
  expect(await row("aborted").locator(".state.valid").count()).toBe(0);
  expect(await row("aborted").innerText()).toMatch(/unknown/);
  await row("aborted").getByRole("button").click();
  await expect
    .poll(() => page.getByTestId("validity").innerText())
    .toMatch(/Unknown validity: no validity was received/);
});

test("the view is accessible on a phone, a desk and a wall, in both themes", async () => {
  await row("after").getByRole("button").click();
  await page.getByTestId("load-run").locator(".heatmap[data-drawn]").waitFor();
  expect(await visitor.allViolations("load")).toEqual([]);
}, 180_000);

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
