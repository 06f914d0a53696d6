/** Contacts in the view Alerts, their last deliveries; and how many requests are affected. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Server } from "./server";
import { HAS_ALL_SCREENSHOTS, Visitor } from "./visitor";

const RULES = `interval = "1s"
[[rule]]
name = "CheckoutSlow"
select = "checkout"
[[rule.criteria]]
severity = 1
quantile = 0.99
above = "250ms"

[[rule]]
name = "QueueDeep"
select = "depth"
[[rule.criteria]]
severity = 2
above = 5
`;

let dir: string;
let receiver: HttpServer;
let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "topdeck-contacts-"));
  await writeFile(join(dir, "shop.toml"), RULES);
  receiver = createServer((request, response) => {
    request.resume().on("end", () => {
      response.statusCode = request.url?.startsWith("/pager") ? 500 : 200;
      response.end();
    });
  });
  await new Promise<void>((done) => receiver.listen(0, "127.0.0.1", done));
  const { port } = receiver.address() as AddressInfo;
  const contact = (name: string, more: string) =>
    `[[contact]]\nname = "${name}"\nkind = "webhook"\n` +
    `url = "http://127.0.0.1:${port}/${name}?key=hidden"\n${more}\n`;
  server = await Server.start(
    false,
    `[alerts]\nrule_files = [${JSON.stringify(join(dir, "*"))}]\n` +
      contact("chat", "") +
      contact("pager", 'failover = "spare"\nfailover_after = "1s"') +
      contact("spare", "") +
      '[route]\nreceiver = "pager"\ngroup_wait = "0s"\n',
  );
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
  receiver?.close();
  if (dir) await rm(dir, { recursive: true, force: true });
});

const contacts = () => page.getByTestId("contacts");
const card = (name: string) =>
  page
    .getByTestId("alerts")
    .locator("> li", { has: page.getByRole("heading", { name, exact: true }) });
const entry = (name: string) => contacts().locator("details", { hasText: name });

test("contacts that were never used say so", async () => {
  await visitor.open("alerts", {});
  await expect.poll(() => contacts().innerText(), { timeout: 20_000 }).toMatch(/unused: 3/);
});

test("a contact that fails is first, with the error, and its failover has the alert", async () => {
  await server.record("checkout", [900, 900, 900, 3]);
  await card("CheckoutSlow").waitFor({ timeout: 20_000 });
  await expect
    .poll(() => contacts().innerText(), { timeout: 40_000 })
    .toMatch(/failing: 1, ok: 1, unused: 1, waiting notifications: 1/);
  const names = await contacts().locator("summary strong").allInnerTexts();
  expect(names).toEqual(["pager", "spare", "chat"]);
  expect(await contacts().innerText()).not.toContain("hidden");
  const pager = entry("pager");
  expect(await pager.locator("summary").innerText()).toMatch(
    /failing\s+pager\s+webhook, 127\.0\.0\.1:\d+, failover spare, since 20\d\d-.*500/s,
  );
  // By keyboard.
  await pager.locator("summary").focus();
  await page.keyboard.press("Enter");
  const open = await pager.innerText();
  expect(open).toMatch(/waits: CheckoutSlow, firing, since .*attempt.*, spare has it, too/);
  expect(open).toMatch(/\n20\d\d-\S+ \S+ CheckoutSlow, firing: retry/);
  await entry("chat").locator("summary").click();
  expect(await entry("chat").innerText()).toContain("topdeck contacts test chat");
});

test("an alert and its history say how many requests were affected, or why not", async () => {
  await server.post("/api/v2/write", "depth value=9");
  await card("QueueDeep").waitFor({ timeout: 20_000 });
  const times = String.raw`20\d\d-\d\d-\d\d \d\d:\d\d:\d\d to `;
  const affected = new RegExp(String.raw`3 of 4 requests above 250 ms \(75 %\), ${times}`);
  await expect.poll(() => card("CheckoutSlow").innerText(), { timeout: 40_000 }).toMatch(affected);
  expect(await card("QueueDeep").innerText()).toMatch(
    /affected\s+unknown\s+\(the rule names no threshold\)/,
  );
  const history = page.getByTestId("alert-history");
  await expect
    .poll(() => history.innerText(), { timeout: 40_000 })
    .toMatch(/CheckoutSlow[^]*fired once[^]*since 20\d\d-[^]*affected:\s+3 of 4 requests/);
});

// 945 of 20,088 in the overview, 919 of 7,644 in Explore, 913 of 4,308 here, without a word why.
test("an alert says what it counts and how sure it is, and Explore counts the same", async () => {
  const text = await card("CheckoutSlow").innerText();
  expect(text).toMatch(/1\s% \(no SLO\) expected: more than chance explains \(p < 0\.001\)/);
  expect(text).toContain("Of checkout, in whole minutes from the rule's window before its start.");
  const href = await card("CheckoutSlow")
    .getByRole("link", { name: "The same in Explore" })
    .getAttribute("href");
  await page.goto(`${server.url}/${href}`);
  await expect
    .poll(() => page.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
    .toMatch(/^3 of 4 above 250 ms\s+75 % above, 1\s% \(no SLO\) expected: more than chance/);
  expect(await page.getByTestId("above-threshold").innerText()).toContain("all series of checkout");
  await visitor.open("alerts", {});
  await card("CheckoutSlow").waitFor({ timeout: 20_000 });
});

test("the contacts are accessible, and nothing overflows", async () => {
  for (const width of [390, 1360, 2560]) {
    for (const theme of ["light", "dark"] as const) {
      expect(await visitor.violations(width, theme), `${width} px, ${theme}`).toEqual([]);
      if (HAS_ALL_SCREENSHOTS) await visitor.screenshot(`contacts-${width}-${theme}`);
    }
  }
  expect(visitor.errors).toEqual([]);
});
