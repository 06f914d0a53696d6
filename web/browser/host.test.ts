/** This host on the page: its block I/O while there is some, what it uses, and what is not known of it. */

import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { fio } from "./fio";
import { Server } from "./server";
import { Visitor } from "./visitor";

let server: Server;
let visitor: Visitor;

beforeAll(async () => {
  // Readings each second: nobody waits long.
  server = await Server.start(true, 'interval = "1s"');
  visitor = await Visitor.start(server);
});
afterAll(async () => {
  await visitor?.stop();
  await server?.stop();
});

interface Told {
  count: number;
  quantiles: { q: number; value: { estimate: number } | null }[];
  above: { count: { estimate: number } }[];
}

/** What is not measured here, and why. */
const notes = async () => (await server.ask<{ host_notes: string[] }>("/v1/status")).host_notes;

/** Ten seconds are whole columns of every picture here, however long it takes. */
const TEN = 10e3;
const number = (of: number) => of.toLocaleString("en-GB");

/** A resource of the grid. */
const row = (name: RegExp) => visitor.page.getByRole("row", { name }).first();

test(
  "block I/O under fio: counted in the kernel, drawn, and above a threshold, one number each",
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
          (await server.ask<{ found: number }>("/v1/names", { text: "host_disk_completed_total" }))
            .found,
        { timeout: 60_000 },
      )
      .toBe(1);

    const from = new Date(Math.floor(Date.now() / TEN) * TEN);
    const made = await fio();
    if (typeof made === "string") return stop(made);
    const to = new Date(Math.ceil((Date.now() + 1e3) / TEN) * TEN);
    const range = { from: from.toISOString(), to: to.toISOString() };
    // A reading is stored whole, and after the one before it: when there is a later one, nothing is added to this time.
    const later = {
      selector: "host_hiccup",
      from: new Date(to.getTime() + 1).toISOString(),
      to: "now",
    };
    const isOver = async () =>
      Date.now() > to.getTime() + 1e3 && (await server.ask<Told>("/v1/histogram", later)).count > 0;
    await expect.poll(isOver, { timeout: 60_000, interval: 500 }).toBe(true);
    const of = (device: string, operation: string) =>
      `host_block_io{device="${device}",operation="${operation}"}`;
    const asked = (selector: string, more = {}) =>
      server.ask<Told>("/v1/histogram", { selector, ...range, ...more });

    // Where fio's requests went; others may have made some as well.
    const devices = (
      await server.ask<{ values: { value: string }[] }>("/v1/label/device/values", {
        selector: "host_block_io",
      })
    ).values;
    const counts = await Promise.all(
      devices.map(async ({ value }) => ({
        value,
        reads: (await asked(of(value, "read"))).count,
        writes: (await asked(of(value, "write"))).count,
      })),
    );
    const found = counts.find((one) => one.reads >= made.read && one.writes >= made.write);
    if (!found)
      return stop(
        `its ${made.read} reads and ${made.write} writes came to no block device of this kernel: ${JSON.stringify(counts)}`,
      );
    console.log(
      `fio: ${made.read} reads and ${made.write} writes of /dev/${found.value}, which counted ${found.reads} and ${found.writes}`,
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
      expect(await tile.innerText()).toContain(`${number(count)} values`);
      expect(Number(await tile.locator(".picture").getAttribute("data-drawn"))).toBe(count);
    }
    await expect
      .poll(() => row(new RegExp(`^Disk ${device}`)).innerText())
      .toMatch(/busy\s+[\d.]+ %/);
    expect(await row(new RegExp(`^Disk ${device}`)).innerText()).toMatch(
      /under way\s+[\d.]+ requests/,
    );

    // From there to Explore.
    const { page } = visitor;
    await page.getByRole("link", { name: `${device} read`, exact: true }).click();
    await page.locator(".picture[data-drawn]").waitFor();
    await expect.poll(() => visitor.drawn()).toBe(found.reads);
    const p90 = (await asked(of(device, "read"))).quantiles.find((one) => one.q === 0.9)!.value!
      .estimate;
    const threshold = `${Math.round(p90)}ns`;
    const told = await server.ask<Told>("/v1/histogram", {
      selector: new URLSearchParams(page.url().split("?")[1]).get("selector")!,
      ...range,
      above: threshold,
    });
    expect(told.count).toBe(found.reads);
    expect(told.above[0]!.count.estimate).toBeGreaterThan(0);
    await page.getByLabel("Threshold", { exact: true }).fill(threshold);
    await page.keyboard.press("Enter");
    const said = `${number(told.above[0]!.count.estimate)} of ${number(told.count)} above`;
    await expect
      .poll(() => page.getByTestId("harmed").innerText(), { timeout: 20_000 })
      .toContain(said);

    // The link is the view.
    const other = await page.context().newPage();
    await other.goto(page.url());
    await expect
      .poll(() => other.getByTestId("harmed").innerText(), { timeout: 20_000 })
      .toContain(said);
    expect(Number(await other.locator(".picture").getAttribute("data-drawn"))).toBe(found.reads);
    expect(await other.getByTestId("harmed").innerText()).toBe(
      await page.getByTestId("harmed").innerText(),
    );
    await other.close();
  },
);

test(
  "what a host uses, at any width, and what is not collected yet",
  { timeout: 120_000 },
  async () => {
    await visitor.open("host", { from: "-15m", to: "now" });
    await expect
      .poll(() => visitor.page.locator("main").innerText(), { timeout: 30_000 })
      .toMatch(/busy\s+[\d.]+ %/);
    expect(await row(/^Processors/).innerText()).toContain(
      "not collected: topdeck reads no machine checks",
    );
    expect(await row(/^Memory/).innerText()).toMatch(/in use\s+[\d.]+ %/);
    const resources = visitor.page.getByRole("region", { name: /^Utilisation/ });
    expect(await resources.getByRole("columnheader").allInnerTexts()).toEqual([
      "Resource",
      "Utilisation",
      "Saturation",
      "Errors",
    ]);
    // What the kernel does not let topdeck measure is said where it would stand.
    for (const note of await notes())
      expect(await visitor.page.locator("main").innerText()).toContain(note);
    // Readings of some seconds are not said to be of a quarter of an hour.
    expect(await visitor.page.locator("main").innerText()).toMatch(
      /Numbers are of .* that is what readings cover of 15 min/,
    );
    expect(
      await visitor.page
        .getByRole("heading", { name: "Processes and operations in flight" })
        .count(),
    ).toBe(1);
    for (const width of [360, 800, 3840]) {
      for (const theme of ["light", "dark"] as const) {
        expect(await visitor.obstacles(width, theme), `${width} px, ${theme}`).toEqual([]);
        // A cell is one however it is laid out.
        expect(
          await row(/^Memory/)
            .getByRole("cell")
            .count(),
        ).toBe(3);
      }
    }
  },
);

test("what is switched off is unknown, and no nought", { timeout: 120_000 }, async () => {
  const off = await Server.start(
    "block_io = false\nrun_queue = false\nprocesses = false\nhiccup = false\nprograms = false\n",
    'interval = "1s"',
  );
  const another = await Visitor.start(off);
  try {
    // Until there are two readings, for there is nothing between one and itself.
    await expect
      .poll(
        async () =>
          (await off.ask<{ found: number }>("/v1/names", { text: "host_disk_busy" })).found,
        { timeout: 60_000 },
      )
      .toBe(1);
    await another.open("host", { from: "-15m", to: "now" });
    const main = another.page.locator("main");
    await expect.poll(() => main.innerText(), { timeout: 30_000 }).toMatch(/busy\s+[\d.]+ %/);
    const text = await main.innerText();
    expect(text).toContain(
      "Waits for a processor are not collected: run_queue is off in the settings of that host",
    );
    expect(text).toContain("Hiccups are not collected: hiccup is off in the settings of that host");
    if ((await another.page.getByRole("rowheader", { name: /^Disk/ }).count()) > 0) {
      expect(text).toMatch(/failed\s+not collected: block_io is off in the settings of that host/);
    }
    expect(another.troubles).toEqual([]);
  } finally {
    await another.stop();
    await off.stop();
  }
});

test(
  "a process that records into shared memory: what the page says of it is what the server answers",
  { timeout: 180_000 },
  async ({ skip }) => {
    // Another topdeck is a program like any other.
    const other = await Server.start(false);
    try {
      await other.record("answer", [1, 2, 3]);
      const seen = async () =>
        (
          await server.ask<{ found: number }>("/v1/series", {
            selector: `process_up{process="topdeck",pid="${other.pid}"}`,
          })
        ).found;
      const isSeen = await expect
        .poll(seen, { timeout: 30_000 })
        .toBe(1)
        .then(
          () => true,
          () => false,
        );
      const note = (await notes()).find((one) => one.includes("shared memory"));
      if (!isSeen && note) return skip(note);
      expect(isSeen).toBe(true);
      const metric = "topdeck_journal_append";
      const of = `${metric}{process="topdeck",pid="${other.pid}"}`;
      const to = new Date(Math.ceil((Date.now() + 2e3) / TEN) * TEN);
      // Sixty windows of ten seconds, the last five of which are told of processes.
      const from = new Date(to.getTime() - 60 * TEN);
      const range = { from: from.toISOString(), to: to.toISOString() };
      await expect
        .poll(() => Date.now() > to.getTime() + 3e3, { timeout: 60_000, interval: 500 })
        .toBe(true);
      await other.stop();

      await visitor.open("host", range);
      const region = visitor.page.getByRole("region", {
        name: "Processes and operations in flight",
      });
      const line = region.getByRole("row", { name: new RegExp(`^topdeck ${other.pid}`) }).first();
      await line.waitFor({ timeout: 60_000 });
      if (process.env["TOPDECK_SCREENSHOTS"])
        await region.screenshot({
          path: join(process.env["TOPDECK_SCREENSHOTS"], "host-processes.png"),
        });
      const cells = await line.getByRole("cell").allInnerTexts();
      // The busiest timing of that process, in the last part of the time: what is asked here by other words.
      const recent = 5 * TEN;
      const busiest = `{__name__="${cells[0]}",process="topdeck",pid="${other.pid}"}`;
      const last = { from: new Date(to.getTime() - recent).toISOString(), to: range.to };
      const told = await server.ask<Told>("/v1/histogram", { selector: busiest, ...last });
      expect(told.count).toBeGreaterThan(0);
      expect(Number.parseFloat(cells[1]!)).toBeCloseTo(told.count / (recent / 1e3), 1);
      expect(await region.innerText()).toContain("the last 50 s");
      // All that it ever appended is there, once.
      const all = await server.ask<Told>("/v1/histogram", { selector: of });
      expect(all.count).toBeGreaterThan(0);
    } finally {
      await other.stop();
    }
  },
);

test(
  "processes of this host, sorted and filtered by pointer and keys, and how one ended",
  { timeout: 180_000 },
  async ({ skip }) => {
    const { why } = await server.ask<{ why: string | null }>("/v1/processes");
    if (why) return skip(why);
    const other = await Server.start(false);
    const [own, ended] = [String(server.pid), String(other.pid)];
    await expect
      .poll(
        async () =>
          (
            await server.ask<{ found: number }>("/v1/series", {
              selector: `process_up{pid="${ended}"}`,
            })
          ).found,
        { timeout: 30_000 },
      )
      .toBe(1);
    await other.stop();
    await expect
      .poll(
        async () =>
          (
            await server.ask<{ found: number }>("/v1/texts", {
              selector: `process_end{pid="${ended}"}`,
            })
          ).found,
        { timeout: 30_000 },
      )
      .toBe(1);

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
    expect(cells[3]).toMatch(/runs|sleeps/);
    expect(new URLSearchParams(page.url().split("?")[1]).get("process")).toBe(own);
    await region.getByLabel("Filter").fill("no such process at all");
    await expect
      .poll(() => region.innerText())
      .toContain("No process has all words of the filter.");
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
    await region.getByRole("button", { name: "Memory" }).focus();
    await page.keyboard.press("Enter");
    await expect
      .poll(() => region.getByRole("columnheader", { name: "Memory" }).getAttribute("aria-sort"))
      .toBe("descending");

    const end = region.getByRole("row", { name: new RegExp(`^topdeck ${ended}`) });
    await end.first().waitFor({ timeout: 60_000 });
    expect(await end.first().innerText()).toMatch(/ended/);
    for (const width of [360, 1280]) {
      expect(await visitor.obstacles(width, "light"), `${width} px`).toEqual([]);
      if (process.env["TOPDECK_SCREENSHOTS"])
        await region.screenshot({
          path: join(process.env["TOPDECK_SCREENSHOTS"], `host-processes-${width}.png`),
        });
    }
  },
);

test("nothing went wrong and nothing was asked elsewhere", () => {
  expect(visitor.troubles).toEqual([]);
});
