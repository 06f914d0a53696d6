/** SLOs: their order, budget, days, and what another threshold would have attained. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { HAS_ALL_SCREENSHOTS, Visitor } from "./visitor";

const HOUR = 3_600e3;
const DAY = 24 * HOUR;
const SETTINGS = `[[slo]]
name = "checkout"
description = "Checkouts are answered in time"
selector = 'request{route="/checkout"}'
threshold = "250ms"
objective = "99.5%"
period = "14d"
users = 20000

[[slo.correction]]
from = "${new Date(Date.now() - 5 * DAY).toISOString()}"
to = "${new Date(Date.now() - 4.5 * DAY).toISOString()}"
reason = "planned move of the database"

[[slo]]
name = "search"
selector = 'request{route="/search"}'
threshold = "1s"
objective = "95%"

[[slo]]
name = "nothing"
selector = "absent"
threshold = "1s"
objective = "99%"
`;

let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  server = await Server.start(false, SETTINGS);
  const end = Math.floor(Date.now() / 60e3) * 60e3;
  const points = [];
  for (let hour = 0; hour < 12 * 24; hour++) {
    const at = end - hour * HOUR;
    const isBad = hour >= 50 && hour < 56;
    for (const route of ["/checkout", "/search"]) {
      const values = Array.from({ length: 200 }, (_, one) =>
        isBad && one < 60 ? 0.9 : 0.02 + (one % 40) * 0.004,
      );
      if (route === "/checkout" && hour % 7 === 0) values.push(0.251);
      points.push({ start: at - 60e3, end: at, labels: { route }, values });
    }
  }
  await server.send("request", points);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

const main = () => page.locator("main");
const says = (expected: RegExp) =>
  expect.poll(() => main().innerText(), { timeout: 60_000 }).toMatch(expected);
const card = (name: string) =>
  page
    .getByTestId("slos")
    .locator("> li", { has: page.getByRole("button", { name, exact: true }) });

async function expectAccessible(name: string): Promise<void> {
  for (const width of [390, 1360, 2560]) {
    for (const theme of ["light", "dark"] as const) {
      expect(await visitor.violations(width, theme), `${width} px, ${theme}`).toEqual([]);
      if (HAS_ALL_SCREENSHOTS) await visitor.screenshot(`${name}-${width}-${theme}`);
    }
  }
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
}

// Explore expected 1 % above it, and the overview 0.5 %.
test("Explore expects above the threshold of an SLO what its objective allows", async () => {
  const settings = { selector: 'request{route="/checkout"}', from: "-12d", to: "now" };
  await visitor.explore({ ...settings, threshold: "250ms" });
  const box = page.getByTestId("above-threshold");
  await expect
    .poll(() => box.innerText(), { timeout: 20_000 })
    .toMatch(/0\.5\s% \(SLO checkout\) expected: more than chance explains/);
  await visitor.explore({ ...settings, threshold: "260ms" });
  await expect.poll(() => box.innerText()).toMatch(/1\s% \(no SLO\) expected/);
});

test("the SLO with the least budget is first, and an unknown one is not green", async () => {
  // The first computation may have preceded the data.
  const computed = async () => {
    const { slos } = await server.ask<{ slos: { budget: { events: { total: number } } }[] }>(
      "/v1/slos",
    );
    return slos.filter((slo) => slo.budget?.events.total > 0).length;
  };
  await expect.poll(computed, { timeout: 90_000 }).toBe(2);
  await visitor.open("slos", { slo: "checkout" });
  await says(/Budget left over time/);
  const names = await page.getByTestId("slos").locator("h2").allInnerTexts();
  expect(names).toEqual(["nothing", "checkout", "search"]);
  expect(await card("nothing").innerText()).toMatch(/unknown/);
  expect(await card("nothing").getAttribute("class")).toContain("unknown");
  expect(await card("search").innerText()).toMatch(/budget left[^]*% of the budget left/);
  expect(await card("checkout").innerText()).toMatch(/budget spent[^]*objective 99\.5 % in 14 d/);
}, 120_000);

test("the first page names the budget that is spent", async () => {
  await visitor.open("overview", {});
  const box = page.getByTestId("needs-attention");
  await expect.poll(() => box.innerText()).toMatch(/1 error budget spent: checkout −[\d,]+ % left/);
  const link = box.getByRole("link", { name: "1 error budget spent" });
  expect(await link.getAttribute("href")).toContain("#/slos");
  await visitor.open("slos", { slo: "checkout" });
  await says(/Budget left over time/);
});

test("an SLO has its users, correction, days, and windows of alerts", async () => {
  const text = await main().innerText();
  expect(text).toMatch(/users affected\s+[\d,]+( \([^)]*\))? of 20,000/);
  expect(text).toMatch(/Taken out: [^]*planned move of the database/);
  expect(text).toMatch(/With it, −?[\d,]+ %/);
  expect(text).toContain("2 % × 14 d / 1 h = 6.72");
  // Its period, from its first events on: 12 dates late in the day, before that 13.
  expect(await page.getByTestId("slo-day").count()).toBeGreaterThan(11);
  await page.getByText(/Table of \d+ days/).click();
  expect(await page.getByRole("cell", { name: /taken out/ }).count()).toBeGreaterThan(0);
});

test("the slider says at once what a threshold would have attained", async () => {
  const verdict = page.getByTestId("slo-verdict");
  expect(await verdict.innerText()).toMatch(/at 250 ms: [^]*would have been missed/);
  const slider = page.getByRole("slider", { name: "Threshold" });
  await slider.focus();
  await page.keyboard.press("End");
  await expect.poll(() => verdict.innerText()).toMatch(/100 % good at [^]*been attained/);
  await says(/What would have been with/);
  expect(page.url()).toMatch(/threshold=/);
  await says(/100 %\s+good/);
  await page.getByRole("button", { name: "Back to the settings" }).click();
  await expect.poll(() => verdict.innerText()).toMatch(/at 250 ms/);
  await page.getByLabel("Objective").fill("50%");
  await page.keyboard.press("Enter");
  await says(/an objective of\s+50 %/);
  await page.getByRole("button", { name: "Back to the settings" }).click();
});

test("the view is accessible on a phone, a desk and a wall, in both themes", async () => {
  await expectAccessible("slos");
}, 180_000);
