/** The view Host: block I/O under load, resources, processes, and reasons for missing values. */

import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { isWide } from "../src/lib/distribution";
import { fio } from "./fio";
import { Server } from "./server";
import { Visitor } from "./visitor";

let server: Server;
let visitor: Visitor;

beforeAll(async () => {
  // A sample each second, for short tests.
  server = await Server.start("shm_other_topdecks = true\n", 'collection_interval = "1s"');
  visitor = await Visitor.start(server);
});
afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

interface HistogramJson {
  count: number;
  quantiles: { q: number; value: { estimate: number } | null }[];
  above: { count: { lower: number; estimate: number; upper: number } }[];
}

/** Collector warnings of this machine. */
const notes = async () =>
  (await server.ask<{ host_warnings: string[] }>("/v1/status")).host_warnings;

/** Ranges of whole seconds, up to some minutes long, have whole columns and whole windows. */
const SECOND = 1e3;
const number = (of: number) => of.toLocaleString("en-GB");

/** The view's text after its refresh interval: stats of counters need two samples. */
const refreshed =
  ({ page }: Visitor) =>
  async () => {
    await page.clock.fastForward(10_000);
    return page.locator("main").innerText();
  };
const POLL = { timeout: 60_000, interval: 500 };

/** A resource of the grid. */
const row = (name: RegExp) => visitor.page.getByRole("row", { name }).first();

test(
  "block I/O under fio: the kernel, the server and the page have the same counts",
  { timeout: 180_000 },
  async ({ skip }) => {
    const stop = (why: string) => {
      console.log(`block I/O under fio is not tested: ${why}`);
      skip(why);
    };
    const note = (await notes()).find((one) => one.startsWith("block I/O"));
    if (note) return stop(note);
    await expect
      .poll(
        async () =>
          (
            await server.ask<{ total: number }>("/v1/metric_names", {
              search: "host_disk_completed_total",
            })
          ).total,
        { timeout: 60_000 },
      )
      .toBe(1);

    const from = new Date(Math.floor(Date.now() / SECOND) * SECOND);
    const made = await fio();
    if (typeof made === "string") return stop(made);
    const to = new Date(Math.ceil((Date.now() + 1e3) / SECOND) * SECOND);
    const range = { from: from.toISOString(), to: to.toISOString() };
    // Samples are stored in order: once there is a later one, nothing is added to this range.
    const later = {
      selector: "host_hiccup_delay",
      from: new Date(to.getTime() + 1).toISOString(),
      to: "now",
    };
    const isOver = async () =>
      Date.now() > to.getTime() + 1e3 &&
      (await server.ask<HistogramJson>("/v1/histogram", later)).count > 0;
    await expect.poll(isOver, { timeout: 60_000, interval: 500 }).toBe(true);
    const of = (device: string, operation: string) =>
      `host_block_io_latency{device="${device}",operation="${operation}"}`;
    const fetchHistogram = (selector: string, more = {}) =>
      server.ask<HistogramJson>("/v1/histogram", { selector, ...range, ...more });

    // Where fio's requests went; others may have made some as well.
    const labelValues = async (label: string, selector: string) => {
      const path = `/v1/label/${label}/values`;
      const answer = await server.ask<{ values: { value: string }[] }>(path, { selector });
      return answer.values.map((one) => one.value);
    };
    // A device has series of the operations that were seen: others may use one for writes only.
    const countOf = async (device: string, operation: string) => {
      const seen = await labelValues("operation", `host_block_io_latency{device="${device}"}`);
      return seen.includes(operation) ? (await fetchHistogram(of(device, operation))).count : 0;
    };
    const devices = await labelValues("device", "host_block_io_latency");
    const counts = await Promise.all(
      devices.map(async (value) => ({
        value,
        reads: await countOf(value, "read"),
        writes: await countOf(value, "write"),
      })),
    );
    const found = counts.find((one) => one.reads >= made.read && one.writes >= made.write);
    if (!found)
      return stop(
        `no device has its ${made.read} reads, ${made.write} writes: ${JSON.stringify(counts)}`,
      );
    console.log(
      `fio: ${made.read} reads, ${made.write} writes; ` +
        `/dev/${found.value}: ${found.reads} and ${found.writes}`,
    );
    const device = found.value;

    // The view of the host has them, by device and operation.
    await visitor.open("host", range);
    for (const [operation, count] of [
      ["read", found.reads],
      ["write", found.writes],
    ] as const) {
      const link = visitor.page.getByRole("link", { name: `${device} ${operation}`, exact: true });
      await link.waitFor({ timeout: 30_000 });
      const tile = visitor.page.locator(".tile", { has: link });
      await expect.poll(() => tile.innerText()).toContain(`${number(count)} values`);
      expect(Number(await tile.locator(".heatmap").getAttribute("data-drawn"))).toBe(count);
    }
    await expect
      .poll(() => row(new RegExp(`^Disk ${device}`)).innerText())
      .toMatch(/I\/O time\s+[<\d.]+ %/);
    expect(await row(new RegExp(`^Disk ${device}`)).innerText()).toMatch(
      /avg queue length\s+[\d.]+ requests?/,
    );

    // From there to Explore.
    const { page } = visitor;
    await page.getByRole("link", { name: `${device} read`, exact: true }).click();
    await page.locator(".heatmap[data-drawn]").waitFor();
    await expect.poll(() => visitor.drawn()).toBe(found.reads);
    const p90 = (await fetchHistogram(of(device, "read"))).quantiles.find((one) => one.q === 0.9)!
      .value!.estimate;
    const threshold = `${Math.round(p90)}ns`;
    const response = await server.ask<HistogramJson>("/v1/histogram", {
      selector: new URLSearchParams(page.url().split("?")[1]).get("selector")!,
      ...range,
      above: threshold,
    });
    expect(response.count).toBe(found.reads);
    expect(response.above[0]!.count.estimate).toBeGreaterThan(0);
    await page.getByLabel("Threshold", { exact: true }).fill(threshold);
    await page.keyboard.press("Enter");
    const { lower, estimate, upper } = response.above[0]!.count;
    const isRange = isWide(lower, upper);
    const above = isRange ? `${number(lower)} to ${number(upper)}` : number(estimate);
    const expected = `${above} of ${number(response.count)} above`;
    await expect
      .poll(() => page.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
      .toContain(expected);

    // The link is the view.
    const other = await page.context().newPage();
    await other.goto(page.url());
    await expect
      .poll(() => other.getByTestId("above-threshold").innerText(), { timeout: 20_000 })
      .toContain(expected);
    expect(Number(await other.locator(".heatmap").getAttribute("data-drawn"))).toBe(found.reads);
    await expect
      .poll(() => other.getByTestId("above-threshold").innerText())
      .toBe(await page.getByTestId("above-threshold").innerText());
    await other.close();
  },
);

test("resource usage at every width, and what is not collected", { timeout: 120_000 }, async () => {
  await visitor.open("host", { from: "-15m", to: "now" });
  await expect
    .poll(() => visitor.page.locator("main").innerText(), { timeout: 30_000 })
    .toMatch(/I\/O time\s+[<\d.]+ %/);
  await expect.poll(() => row(/^CPU/).innerText()).toContain("machine check errors not collected");
  await expect.poll(() => row(/^Memory/).innerText()).toMatch(/in use\s+[\d.]+ %/);
  const resources = visitor.page.getByRole("region", { name: /^Utilisation/ });
  await expect
    .poll(() => resources.getByRole("columnheader").allInnerTexts())
    .toEqual(["Resource", "Utilisation", "Saturation", "Errors"]);
  // The reason for each missing metric is shown.
  for (const note of await notes())
    expect(await visitor.page.locator("main").innerText()).toContain(note);
  // Samples of some seconds are not shown as if they covered 15 minutes.
  expect(await visitor.page.locator("main").innerText()).toMatch(/Samples cover .* of 15 min/);
  expect(
    await visitor.page.getByRole("heading", { name: "Processes and operations in flight" }).count(),
  ).toBe(1);
  const displays = [
    [360, "light"],
    [800, "dark"],
    [3840, "light"],
  ] as const;
  for (const [width, theme] of displays) {
    expect(await visitor.obstacles(width, theme), `${width} px, ${theme}`).toEqual([]);
    // Cells keep their role in every layout.
    const cells = row(/^Memory/).getByRole("cell");
    expect(await cells.count()).toBe(3);
  }
});

test("a disabled collector shows its reason, not 0", { timeout: 120_000 }, async () => {
  const off = await Server.start(
    "block_io = false\nrun_queue = false\nprocesses = false\nhiccup = false\nshm_metrics = false\n",
    'collection_interval = "1s"',
  );
  const another = await Visitor.start(off);
  try {
    await another.page.clock.install();
    await another.open("host", { from: "-15m", to: "now" });
    const main = another.page.locator("main");
    await expect.poll(refreshed(another), POLL).toMatch(/I\/O time\s+[<\d.]+ %/);
    const text = await main.innerText();
    expect(text).toContain(
      "Run queue latency not collected: run_queue is disabled in that host's [host] settings",
    );
    expect(text).toContain(
      "Hiccups not collected: hiccup is disabled in that host's [host] settings",
    );
    if ((await another.page.getByRole("rowheader", { name: /^Disk/ }).count()) > 0) {
      expect(text).toMatch(
        /I\/O errors\s+not collected: block_io is disabled in that host's \[host\] settings/,
      );
    }
    expect(another.errors).toEqual([]);
  } finally {
    await another.stop();
    await off.stop();
  }
});

/** The generation that a process holds: stored series have no PID. */
async function generationOf(pid: number | undefined): Promise<string | null> {
  interface ProcessesJson {
    processes: { pid: number; program: { generation: string | null } | null }[];
  }
  const { processes } = await server.ask<ProcessesJson>("/v1/processes");
  return processes.find((one) => one.pid === pid)?.program?.generation ?? null;
}

test(
  "a program with metrics in shared memory: the page shows what the server returns",
  { timeout: 180_000 },
  async ({ skip }) => {
    // Another topdeck, which appends its own metrics each second.
    const other = await Server.start(false, 'collection_interval = "1s"');
    try {
      await other.record("answer", [1, 2, 3]);
      const isSeen = await expect
        .poll(() => generationOf(other.pid), { timeout: 60_000 })
        .not.toBeNull()
        .then(
          () => true,
          () => false,
        );
      const note = (await notes()).find((one) => one.includes("shared memory"));
      if (!isSeen && note) return skip(note);
      expect(isSeen).toBe(true);
      const metric = "topdeck_journal_append_duration";
      const identity = `process="topdeck",generation="${await generationOf(other.pid)}"`;
      const of = `${metric}{${identity}}`;
      const to = new Date(Math.ceil((Date.now() + SECOND) / SECOND) * SECOND);
      // Sixty windows of a second; rates of programs cover the last five.
      const from = new Date(to.getTime() - 60 * SECOND);
      const range = { from: from.toISOString(), to: to.toISOString() };
      // Samples are stored in order: once there is a later one, nothing is added to the range.
      const later = { selector: of, from: new Date(to.getTime() + 1).toISOString(), to: "now" };
      const isOver = async () =>
        (await server.ask<HistogramJson>("/v1/histogram", later)).count > 0;
      await expect.poll(isOver, { timeout: 60_000 }).toBe(true);

      await visitor.open("host", range);
      const region = visitor.page.getByRole("region", {
        name: "Processes and operations in flight",
      });
      // In a range that has ended, a process has the number of its generation.
      const shown = `(${other.pid}|#${await generationOf(other.pid)})`;
      const line = region.getByRole("row", { name: new RegExp(`^topdeck ${shown}`) }).first();
      await line.waitFor({ timeout: 60_000 });
      if (process.env["TOPDECK_SCREENSHOTS"])
        await region.screenshot({
          path: join(process.env["TOPDECK_SCREENSHOTS"], "host-processes.png"),
        });
      const cells = await line.getByRole("cell").allInnerTexts();
      // The busiest timing of that process, by another query.
      const recent = 5 * SECOND;
      const busiest = `{__name__="${cells[0]}",${identity}}`;
      const last = { from: new Date(to.getTime() - recent).toISOString(), to: range.to };
      const response = await server.ask<HistogramJson>("/v1/histogram", {
        selector: busiest,
        ...last,
      });
      expect(response.count).toBeGreaterThan(0);
      expect(Number.parseFloat(cells[1]!)).toBeCloseTo(response.count / (recent / 1e3), 1);
      await expect.poll(() => region.innerText()).toContain("the last 5 s");
      // The whole of it is stored.
      const all = await server.ask<HistogramJson>("/v1/histogram", { selector: of });
      expect(all.count).toBeGreaterThan(0);
    } finally {
      await other.stop();
    }
  },
);

test(
  "processes of this host, sorted and filtered by pointer and keys, and the exit of one",
  { timeout: 180_000 },
  async ({ skip }) => {
    // The table has one publisher per host: once the server of another test has stopped, it takes
    // a moment until the next one publishes.
    const reason = async () =>
      (await server.ask<{ reason: string | null }>("/v1/processes")).reason;
    const isKnown = await expect
      .poll(reason, { timeout: 30_000 })
      .toBeNull()
      .then(
        () => true,
        () => false,
      );
    if (!isKnown) return skip((await reason()) ?? "");
    const other = await Server.start(false);
    const own = String(server.pid);
    await expect.poll(() => generationOf(other.pid), { timeout: 60_000 }).not.toBeNull();
    const ended = await generationOf(other.pid);
    const exitsOf = async () => {
      const selector = `process_exit_info{process="topdeck",generation="${ended}"}`;
      const found = await server.ask<{ texts: { time_ns: number }[] }>("/v1/texts", {
        selector,
      });
      return found.texts[0]?.time_ns ?? 0;
    };
    const before = await exitsOf();
    await other.stop();
    await expect.poll(exitsOf, { timeout: 30_000 }).toBeGreaterThan(before);

    await visitor.open("host", { from: "-15m", to: "now" });
    const { page } = visitor;
    const region = page.getByRole("region", { name: "Processes and operations in flight" });
    const row = region.getByRole("row", { name: new RegExp(`^topdeck ${own}`) });
    await region.getByLabel("Filter").fill(own);
    await row.first().waitFor({ timeout: 30_000 });
    // It runs, and takes some processor and memory: numbers with units.
    await expect
      .poll(async () => (await row.first().getByRole("cell").allInnerTexts())[0], {
        timeout: 20_000,
      })
      .toMatch(/^[<\d. ]+ %$/);
    const cells = await row.first().getByRole("cell").allInnerTexts();
    expect(cells[1]).toMatch(/^[\d.]+ MB$/);
    expect(Number(cells[2])).toBeGreaterThan(1);
    expect(cells[3]).toMatch(/running|sleeping/);
    expect(new URLSearchParams(page.url().split("?")[1]).get("process")).toBe(own);
    await region.getByLabel("Filter").fill("no such process at all");
    await expect
      .poll(() => region.innerText())
      .toContain("No process matches all words of the filter.");
    await region.getByLabel("Filter").fill("");

    const names = async () =>
      (await region.getByRole("table").first().getByRole("rowheader").allInnerTexts()).map((name) =>
        name.trim(),
      );
    await region.getByRole("button", { name: "Process" }).click();
    const up = await names();
    expect(up).toEqual([...up].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })));
    expect(
      await region.getByRole("columnheader", { name: "Process" }).first().getAttribute("aria-sort"),
    ).toBe("ascending");
    await region.getByRole("button", { name: "RSS" }).focus();
    await page.keyboard.press("Enter");
    await expect
      .poll(() => region.getByRole("columnheader", { name: "RSS" }).getAttribute("aria-sort"))
      .toBe("descending");

    // Other tests may have stopped more servers than the table shows at first.
    const exits = region.getByRole("heading", { name: "Exited in the range" });
    await exits.waitFor({ timeout: 60_000 });
    const expand = exits
      .locator("xpath=following-sibling::div/button")
      .filter({ hasNotText: /^Show 10$/ });
    const end = region.getByRole("row", { name: new RegExp(`^topdeck #${ended}`) });
    // Servers that exit meanwhile push the row out of the first ones.
    const isShown = async () => {
      if ((await end.count()) === 0 && (await expand.count()) > 0) await expand.click();
      return (await end.count()) > 0;
    };
    await expect.poll(isShown, { timeout: 60_000 }).toBe(true);
    await expect.poll(() => end.first().innerText()).toMatch(/ended|exited|died/);
    // Some rows are as good as all for axe, and faster.
    await region.getByLabel("Filter").fill("topdeck");
    for (const width of [360, 1280]) {
      expect(await visitor.obstacles(width, "light"), `${width} px`).toEqual([]);
      if (process.env["TOPDECK_SCREENSHOTS"])
        await region.screenshot({
          path: join(process.env["TOPDECK_SCREENSHOTS"], `host-processes-${width}.png`),
        });
    }
  },
);

test("no errors, and no requests to other hosts", () => {
  expect(visitor.errors).toEqual([]);
});
