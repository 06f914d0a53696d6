/** Alerts: what fires, is unknown or pending, as it changes; rules; and what is shown without. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { AlertJson, AlertsJson } from "../src/lib/alerts";
import { Server } from "./server";
import { HAS_ALL_SCREENSHOTS, Visitor } from "./visitor";

const RULES = `groups:
- name: shop
  interval: 200ms
  rules:
  - record: depth:max
    expr: max(depth)
  - alert: QueueDeep
    expr: depth > 5
    labels: {severity: page}
    annotations:
      summary: "The queue of {{ $labels.host }} has {{ $value }} entries"
      runbook_url: https://wiki.example/queue-deep
  - alert: QueueDeepForLong
    expr: max by (zone) (depth) > 5
    for: 2h
  - alert: SensorHot
    expr: last_over_time(sensor[3s]) > 3
    annotations: {topdeck_missing_data: hold}
  - alert: PriceWrong
    expr: price * on (item) rate_of_exchange > 10
  - alert: Misspelled
    expr: dept(depth) > 5
`;

const OWN_RULES = `interval = "1s"
[[rule]]
name = "CheckoutSlow"
select = "checkout"
[[rule.criteria]]
severity = 3
quantile = 0.99
above = "250ms"
`;

let dir: string;
let server: Server;
let visitor: Visitor;
let page: Page;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "topdeck-rules-"));
  await writeFile(join(dir, "shop.yaml"), RULES);
  await writeFile(join(dir, "shop.toml"), OWN_RULES);
  const settings = `[alerts]\nrule_files = [${JSON.stringify(join(dir, "*"))}]\n`;
  server = await Server.start(false, settings);
  visitor = await Visitor.start(server);
  page = visitor.page;
});

afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
  if (dir) await rm(dir, { recursive: true, force: true });
});

const write = (lines: string) => server.post("/api/v2/write", lines);
const main = () => page.locator("main");
const says = (expected: RegExp) =>
  expect.poll(() => main().innerText(), { timeout: 20_000 }).toMatch(expected);
const card = (name: string) =>
  page
    .getByTestId("alerts")
    .locator("> li", { has: page.getByRole("heading", { name, exact: true }) });

/** The state of the first alert of a rule. */
async function headline(name: string): Promise<string> {
  const first = card(name).first();
  if ((await first.count()) === 0) return "none";
  return (await first.innerText()).split("\n")[0]!;
}

/** Overflow, and all findings of axe, on a phone and a desk, in both themes. */
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

test("without alerts: how many rules are evaluated; an unused rule is no good news", async () => {
  await visitor.open("alerts", {});
  await says(/No alerts now\. 6 rules evaluated, 1 problem in rule files\./);
  expect(await page.locator(".verdict.good").count()).toBe(0);
  const problem = await page.getByTestId("rule-problems").innerText();
  expect(problem).toMatch(/Not used[^]*shop\.yaml:\d+:\d+[^]*dept/);
  expect(await page.title()).toBe("Alerts · topdeck");
});

test("an alert that fires is shown at once, with its labels, and in the tab", async () => {
  // The page is open; it is not loaded again.
  await write("depth,host=a,zone=north value=7.5");
  await card("QueueDeep").waitFor({ timeout: 20_000 });
  const firing = card("QueueDeep");
  const text = await firing.innerText();
  expect(text).toMatch(/^firing/);
  for (const label of ['host="a"', 'zone="north"', 'severity="page"'])
    expect(text).toContain(label);
  expect(text).toMatch(/since 20\d\d-\d\d-\d\d/);
  expect(text).toContain("The queue of a has 7.5 entries");
  expect(text).toMatch(/7\.5 the alert is for values above 5/);
  expect(text).toContain("fires until the condition no longer holds");
  expect(text).toMatch(/shop\.yaml:7, group shop/);
  await expect.poll(() => page.title()).toBe("1 firing · Alerts · topdeck");
  const runbook = firing.getByRole("link", { name: "https://wiki.example/queue-deep" });
  expect(await runbook.getAttribute("rel")).toContain("noreferrer");
});

test("the first page names an alert that fires, also if no row is of its metric", async () => {
  await visitor.open("overview", {});
  const box = page.getByTestId("needs-attention");
  await expect.poll(() => box.innerText()).toMatch(/1 alert firing: QueueDeep/);
  const link = box.getByRole("link", { name: "1 alert firing" });
  expect(await link.getAttribute("href")).toContain("#/alerts");
  // The rule that is not used is a problem of the server.
  expect(await box.innerText()).toMatch(/1 problem of the server/);
  await visitor.open("alerts", {});
});

test("a pending alert has its deadline, and comes after the one that fires", async () => {
  const pending = card("QueueDeepForLong");
  await pending.waitFor();
  expect(await pending.innerText()).toMatch(
    /^pending[^]*fires in (2 h|2 h \d s|1 h 59 min) if it stays so/,
  );
  const states = pending.getByRole("list", { name: "States" });
  expect(await states.innerText()).toMatch(/^ok\s+pending since [^]*firing in (2|1) h[^]*ok$/);
  const current = states.locator("[aria-current=step]");
  expect(await current.innerText()).toMatch(/^pending since/);
  const names = await page.getByTestId("alerts").locator("h3").allInnerTexts();
  expect(names).toEqual(["QueueDeep", "QueueDeepForLong"]);
  await says(/1 firing, 0 unknown, 1 pending/);
});

test("an alert whose data is missing is unknown, which is not green", async () => {
  await write("sensor value=4");
  await expect.poll(() => headline("SensorHot"), { timeout: 20_000 }).toBe("firing");
  // Nothing follows within 3 s.
  await expect.poll(() => headline("SensorHot"), { timeout: 20_000 }).toBe("unknown");
  const unknown = await card("SensorHot").innerText();
  expect(unknown).toMatch(/last known: firing[^]*when the condition last held; the alert is for/);
  expect(unknown).toMatch(/no deadline: the state is held[^]*there is no data/);
  const names = await page.getByTestId("alerts").locator("h3").allInnerTexts();
  expect(names).toEqual(["QueueDeep", "SensorHot", "QueueDeepForLong"]);
  await expect.poll(() => page.title()).toBe("1 firing, 1 unknown · Alerts · topdeck");
  const colours = await page.evaluate(() => {
    const colour = (selector: string, of: "color" | "borderLeftColor") =>
      getComputedStyle(document.querySelector(selector)!)[of];
    const shown = ["firing", "unknown"].flatMap((name) => [
      colour(`[data-testid=alerts] .state.${name}`, "color"),
      colour(`[data-testid=alerts] li.${name}`, "borderLeftColor"),
    ]);
    return { shown, good: colour("[data-testid=rules] .state.ok", "color") };
  });
  expect(colours.shown).not.toContain(colours.good);
  expect(await page.locator(".verdict.good").count()).toBe(0);
  const rule = page.getByTestId("rules").locator("tr", { hasText: "SensorHot" });
  await expect.poll(async () => (await rule.innerText()).split(/\s/)[0]).toBe("unknown");
});

test("a rule that fails is first, with its file and error, and its alert says so", async () => {
  await write("price,item=x value=20\nrate_of_exchange,item=x value=1");
  await expect.poll(() => headline("PriceWrong"), { timeout: 20_000 }).toBe("firing");
  // Two series match now: the query fails.
  await write("price,item=x,shop=a value=20\nrate_of_exchange,item=x,bank=b value=1");
  const first = page.getByTestId("rules").locator("tbody tr").first();
  await expect
    .poll(() => first.innerText(), { timeout: 20_000 })
    .toMatch(/firing[^]*PriceWrong[^]*shop\.yaml:\d+[^]*failing[^]*duplicate series/);
  const failing = await card("PriceWrong").innerText();
  expect(failing).toMatch(/query fails[^]*no deadline: the query fails/);
});

test("the page is accessible, and nothing overflows", async () => {
  await expectAccessible("alerts-active");
});

test("a lost connection is unknown: in grey, in the tab, and it recovers", async () => {
  await page.route(/\/(v1|api\/v1)\//, (route) => route.abort("connectionrefused"));
  // The poll in flight ends with the change.
  await write("depth,host=b,zone=south value=9");
  await expect.poll(() => page.title(), { timeout: 20_000 }).toBe("? firing · Alerts · topdeck");
  await says(/No response since \d\d:\d\d(:\d\d)?, retrying/);
  expect(await page.locator(".answer.stale").getByTestId("alerts").count()).toBe(1);
  expect(await page.getByRole("alert").count(), "one message").toBe(1);
  await page.unroute(/\/(v1|api\/v1)\//);
  await expect
    .poll(() => page.title(), { timeout: 20_000 })
    .toBe("3 firing, 1 unknown · Alerts · topdeck");
  await expect.poll(() => page.locator(".answer.stale").count()).toBe(0);
});

test("the link to Explore shows the query around the start of the alert", async () => {
  const link = card("QueueDeep").first().getByRole("link", { name: "Query in Explore" });
  await link.click();
  await says(/depth\{host="a", zone="north"\}/);
  const { hash } = new URL(page.url());
  const settings = new URLSearchParams(hash.slice(hash.indexOf("?") + 1));
  expect([settings.get("query"), settings.get("language"), settings.get("to")]).toEqual([
    "depth > 5",
    "promql",
    "now",
  ]);
  const from = Date.parse(settings.get("from")!);
  expect(Date.now() - from).toBeGreaterThan(29 * 60e3);
  await expect.poll(() => page.locator(".lines").count()).toBeGreaterThan(0);
  expect(await page.title()).toBe("depth > 5 · Explore · topdeck");
});

test("a resolved alert disappears without a reload", async () => {
  await visitor.open("alerts", {});
  await card("QueueDeep").first().waitFor();
  await write("depth,host=a,zone=north value=1\ndepth,host=b,zone=south value=1");
  await expect.poll(() => card("QueueDeep").count(), { timeout: 20_000 }).toBe(0);
  await expect.poll(() => page.title()).toBe("1 firing, 1 unknown · Alerts · topdeck");
  await says(/1 firing, 1 unknown, 0 pending/);
});

/** Fires again, on a host that no test before used. */
async function fire(host: string): Promise<void> {
  await write(`depth,host=${host},zone=west value=8`);
  await card("QueueDeep").waitFor({ timeout: 20_000 });
}

test("an alert is acknowledged with author, note and expiry, and the author is kept", async () => {
  await fire("c");
  await expect.poll(() => page.title()).toBe("2 firing, 1 unknown · Alerts · topdeck");
  const alert = card("QueueDeep");
  await alert.getByRole("button", { name: "Acknowledge …" }).click();
  const form = alert.getByRole("form", { name: "Acknowledge" });
  await form.getByLabel("Author").fill("ann");
  await form.getByLabel("For").selectOption("4 hours");
  await form.getByLabel("Note").fill("the queue is drained");
  await form.getByRole("button", { name: "Acknowledge" }).click();
  await expect
    .poll(() => alert.innerText())
    .toMatch(/by ann until 20\d\d-.* \((4 h|3 h 59 min) left\): the queue is drained/);
  expect(await headline("QueueDeep"), "it still fires").toBe("firing");
  await says(/2 firing \(1 acknowledged\), 1 unknown/);
  await expect.poll(() => page.title()).toBe("1 firing, 1 unknown · Alerts · topdeck");
  // After those that nobody knows of, before unknown ones.
  const names = await page.getByTestId("alerts").locator("h3").allInnerTexts();
  expect(names.slice(0, 3)).toEqual(["PriceWrong", "QueueDeep", "SensorHot"]);
  const { alerts } = await server.ask<{ alerts: AlertJson[] }>("/v1/alerts", {
    state: "acknowledged",
  });
  expect(alerts.map(({ acknowledgement }) => acknowledgement?.note)).toEqual([
    "the queue is drained",
  ]);
  await page.reload();
  await alert.getByRole("button", { name: "Silence …" }).click();
  expect(await alert.getByLabel("Author").inputValue()).toBe("ann");
  await alert.getByRole("button", { name: "Cancel" }).click();
  await alert.getByRole("button", { name: "Remove acknowledgement" }).click();
  await expect.poll(() => alert.innerText()).not.toContain("the queue is drained");
  await expect.poll(() => page.title()).toBe("2 firing, 1 unknown · Alerts · topdeck");
});

test("an alert is silenced by matchers of its labels, and the silence is ended", async () => {
  const alert = card("QueueDeep");
  await alert.getByRole("button", { name: "Silence …" }).click();
  const form = alert.getByRole("form", { name: "Silence" });
  const matchers = form.getByLabel("Matchers, one a line: all must match");
  expect(await matchers.inputValue()).toBe(
    'alertname="QueueDeep"\nhost="c"\nseverity="page"\nzone="west"',
  );
  await expectAccessible("alerts-silence");
  await matchers.fill("host");
  await form.getByRole("button", { name: "Create the silence" }).click();
  const rejection = alert.getByRole("alert");
  expect(await rejection.innerText()).toMatch(/^Cannot create the silence: .*"host".*no operator/);
  await matchers.fill('alertname="QueueDeep"\n\nhost=~"c|d"');
  await form.getByLabel("Comment").fill("the host is replaced");
  await form.getByRole("button", { name: "Create the silence" }).click();
  await expect.poll(() => alert.innerText()).toMatch(/silenced\s+by ann until .*: the host is/);
  const list = page.getByTestId("silences");
  expect(await list.innerText()).toMatch(/active\s+alertname="QueueDeep", host=~"c\|d"/);
  await says(/2 firing \(1 silenced\), 1 unknown/);
  await expect.poll(() => page.title()).toBe("1 firing, 1 unknown · Alerts · topdeck");
  const colours = await alert.evaluate((element) => {
    const good = getComputedStyle(element).getPropertyValue("--good").trim();
    const probe = element.appendChild(document.createElement("i"));
    probe.style.color = good;
    const { color } = getComputedStyle(probe);
    probe.remove();
    const chip = getComputedStyle(element.querySelector(".chip.silenced")!).color;
    return { good: color, shown: [getComputedStyle(element).borderLeftColor, chip] };
  });
  expect(colours.shown).not.toContain(colours.good);
  await expectAccessible("alerts-silenced");
  await list.getByRole("button", { name: /^End: alertname/ }).click();
  await says(/Ended: alertname="QueueDeep", host=~"c\|d"\./);
  await expect.poll(() => list.count()).toBe(0);
  await expect.poll(() => page.title()).toBe("2 firing, 1 unknown · Alerts · topdeck");
});

test("a maintenance window is made for a weekday, listed with its times, and ended", async () => {
  await page.getByRole("button", { name: "Maintenance window …" }).click();
  const form = page.getByRole("form", { name: "Maintenance window" });
  await expectAccessible("alerts-maintenance");
  await form.getByRole("button", { name: "Create the maintenance window" }).click();
  await says(/Cannot create the maintenance window: add a matcher, or choose a severity/);
  await form.getByLabel("Matchers of labels").fill('job="backup"');
  await form.getByLabel("Severity").selectOption({ label: "3 and lesser" });
  await form.getByLabel("When").selectOption({ label: "each day or week" });
  await form.getByLabel("sunday").check();
  await form.getByLabel("Comment").fill("backups");
  await form.getByRole("button", { name: "Create the maintenance window" }).click();
  const list = page.getByTestId("silences");
  await expect
    .poll(() => list.innerText())
    .toMatch(/job="backup", severity!~"1\|.*sunday 02:00 to 04:00, .*: backups/s);
  await list.getByRole("button", { name: /^End: job/ }).click();
  await expect.poll(() => list.count()).toBe(0);
});

test("an alert is cleared with a note, and begins anew because its condition holds", async () => {
  const alert = card("QueueDeep");
  await alert.getByRole("button", { name: "Clear …" }).click();
  const form = alert.getByRole("form", { name: "Clear" });
  expect(await form.innerText()).toContain("It begins anew");
  expect(await form.getByLabel("For").count()).toBe(0);
  await form.getByLabel("Note").fill("the host is gone");
  await form.getByRole("button", { name: "End the alert" }).click();
  const ended = async () => {
    type History = { history: { note: string }[] };
    const { history } = await server.ask<History>("/v1/alerts/history", { event: "resolved" });
    return history.map(({ note }) => note);
  };
  await expect.poll(ended).toContain("the host is gone");
  await expect.poll(() => page.title()).toBe("2 firing, 1 unknown · Alerts · topdeck");
});

test("a token without the scope gets a message that says what to do", async () => {
  const token = await server.addToken("wall", "read");
  const status = async () => {
    const headers = { Authorization: `Bearer ${token}` };
    return (await fetch(`${server.url}/v1/status`, { headers })).status;
  };
  await expect.poll(status, { timeout: 20_000 }).toBe(200);
  const signIn = async (secret: string) => {
    await page.evaluate((secret) => sessionStorage.setItem("topdeck-token", secret), secret);
    await page.reload();
  };
  await signIn(token);
  const alert = card("QueueDeep");
  await alert.getByRole("button", { name: "Acknowledge …" }).click();
  const form = alert.getByRole("form", { name: "Acknowledge" });
  await form.getByRole("button", { name: "Acknowledge" }).click();
  expect(await alert.getByRole("alert").innerText()).toBe(
    "Cannot acknowledge the alert: this page's token lacks the scope alerts; open the page in a " +
      "new tab, and sign in with a token that has it",
  );
  expect(await form.count(), "what was typed is kept").toBe(1);
  await signIn("");
});

test("alerts of own rules and of other programs have what they know, and no more", async () => {
  await server.record("checkout", [900, 900, 900]);
  await expect.poll(() => headline("CheckoutSlow"), { timeout: 20_000 }).toBe("firing");
  const own = await card("CheckoutSlow").innerText();
  expect(own).toMatch(/severity 3[^]*quantile 0\.99 above 250ms of checkout within 5 min/);
  expect(own).toMatch(/900 ms.*\s+threshold 250 ms/);
  expect(own).not.toContain("result of the query");
  const link = card("CheckoutSlow").getByRole("link", { name: "Distributions in Explore" });
  expect(await link.getAttribute("href")).toMatch(/selector=checkout&threshold=250ms/);
  const labels = { alertname: "DiskFull", host: "db1" };
  await fetch(`${server.url}/api/v2/alerts`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify([{ labels, generatorURL: "http://prometheus.example/graph" }]),
  });
  await expect.poll(() => headline("DiskFull"), { timeout: 20_000 }).toBe("firing");
  const received = await card("DiskFull").innerText();
  expect(received).toMatch(
    /received[^]*ends in (5 min|5 min \d s|4 min .*) unless it is received again/,
  );
  expect(received).toMatch(/another program: *\s*http:\/\/prometheus\.example\/graph/);
  expect(received).not.toMatch(/value|rule/);
});

test("the windows of an SLO are one card, whose silence is for all of them", async () => {
  await page.route("**/v1/alerts*", async (route) => {
    const response = await route.fetch();
    const json = (await response.json()) as AlertsJson;
    const first = json.alerts.find(({ name }) => name === "CheckoutSlow")!;
    const window = (window: string, severity: string, value: number): AlertJson => ({
      ...first,
      name: "SloBudgetBurn",
      fingerprint: `${first.fingerprint.slice(0, -2)}${window}`,
      severity: null,
      criterion: null,
      labels: { alertname: "SloBudgetBurn", slo: "checkout", window, severity },
      value,
      file: "slo",
      group: "checkout",
      query: "burn_rate(14.4, 0.001, a, b, c, d) > 14.4",
    });
    json.alerts.push(window("3d", "warning", 1.5), window("1h", "page", 20));
    await route.fulfill({ response, json });
  });
  await visitor.open("alerts", {});
  await card("SloBudgetBurn").waitFor({ timeout: 20_000 });
  expect(await card("SloBudgetBurn").count()).toBe(1);
  const text = await card("SloBudgetBurn").innerText();
  expect(text).toMatch(
    /window 1h, factor 14\.4\s+20 times[^]*severity page[^]*window 3d, factor 14\.4\s+1\.5 times/,
  );
  await card("SloBudgetBurn").getByRole("button", { name: "Silence …" }).click();
  const matchers = card("SloBudgetBurn").getByRole("textbox", { name: /Matchers/ });
  expect(await matchers.inputValue()).toBe('alertname="SloBudgetBurn"\nslo="checkout"');
  await expectAccessible("alerts-slo");
  // A long poll may be on its way.
  await page.unrouteAll({ behavior: "ignoreErrors" });
}, 120_000);

test("without rule files, the page has settings that read some", async () => {
  const empty = await Server.start(false);
  const other = await Visitor.start(empty);
  try {
    await other.open("alerts", {});
    const text = () => other.page.locator("main").innerText();
    await expect.poll(text, { timeout: 20_000 }).toMatch(/No alerts: no rules are evaluated/);
    expect(await text()).toMatch(/\[alerts\]\nrule_files = \["rules\/\*\.yaml"\]\nevaluation/);
    for (const width of [390, 1360]) {
      for (const theme of ["light", "dark"] as const) {
        expect(await other.violations(width, theme), `${width} px, ${theme}`).toEqual([]);
        if (HAS_ALL_SCREENSHOTS) await other.screenshot(`alerts-empty-${width}-${theme}`);
      }
    }
    expect(other.errors).toEqual([]);
  } finally {
    await other.stop();
    await empty.stop();
  }
});

test("no errors, and no requests to other hosts", () => {
  // Those of the lost connection, and of changes that are rejected, are expected.
  const isExpected = /ERR_CONNECTION_REFUSED|status of 40[03] .*\/v1\/(alerts\/ack|silences)/;
  const others = visitor.errors.filter((one) => !isExpected.test(one));
  expect(others).toEqual([]);
});
