/** A browser with one page: navigation, errors, and measurements of the screen. */

import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";

import { chromium, type Browser, type Locator, type Page, type Request } from "playwright-core";

import type { Server } from "./server";

/**
 * `TOPDECK_SCREENSHOTS=docs/images` writes screenshots of the views there, and
 * `TOPDECK_SCREENSHOTS_ALL=1` of all widths and themes.
 */
const SCREENSHOTS = process.env["TOPDECK_SCREENSHOTS"];
export const HAS_ALL_SCREENSHOTS = process.env["TOPDECK_SCREENSHOTS_ALL"] === "1";
/** Evaluated as a string: the page's content security policy allows no script. */
const AXE = readFileSync(
  resolve(import.meta.dirname, "../node_modules/axe-core/axe.min.js"),
  "utf8",
);

/** All impacts of findings of axe. */
const IMPACTS = ["minor", "moderate", "serious", "critical"];

/** Red, green, blue. */
export type Colour = [number, number, number];

/** Charts follow a resized box one frame later, and boxes of charts one after that. */
export async function settled(page: Page): Promise<void> {
  await page.evaluate(async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    for (let count = 0; count < 4; count++) await frame();
  });
}

export class Visitor {
  /** Errors of the page, and requests to other hosts. */
  readonly errors: string[] = [];

  private constructor(
    private readonly browser: Browser,
    private readonly server: Server,
    readonly page: Page,
  ) {
    page.on("console", (message) => {
      // Chromium aborts requests when an interface of the machine appears or disappears.
      const isAborted = message.text().includes("net::ERR_NETWORK_CHANGED");
      if (message.type() !== "error" || isAborted) return;
      this.errors.push(`${message.text()} ${message.location().url}`);
    });
    page.on("pageerror", (error) => this.errors.push(String(error)));
    page.on(
      "request",
      (request) =>
        request.url().startsWith(server.url) ||
        this.errors.push(`request to another host: ${request.url()}`),
    );
  }

  static async start(server: Server): Promise<Visitor> {
    const browser = await chromium.launch({
      executablePath: "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu"],
    });
    const context = await browser.newContext({
      viewport: { width: 1360, height: 900 },
      deviceScaleFactor: 1,
      colorScheme: "light",
      timezoneId: "UTC",
    });
    return new Visitor(browser, server, await context.newPage());
  }

  async stop(): Promise<void> {
    await this.browser.close();
  }

  async open(view: string, settings: Record<string, string>): Promise<void> {
    await this.page.goto("about:blank");
    await this.page.goto(`${this.server.url}/#/${view}?${new URLSearchParams(settings)}`);
  }

  /** Opens Explore and waits for the heatmap; returns the URL of its request. */
  async explore(settings: Record<string, string>): Promise<URL> {
    // The page requests longer columns if the first ones are shorter than the data's interval.
    const requested: string[] = [];
    const note = (request: Request) => {
      if (request.url().includes("/v1/heatmap")) requested.push(request.url());
    };
    this.page.on("request", note);
    await this.open("explore", settings);
    await this.page.locator(".heatmap[data-drawn]").waitFor();
    this.page.off("request", note);
    return new URL(requested.at(-1)!);
  }

  /** Overflow, and serious findings of axe, at a width and in a theme. */
  async obstacles(width: number, colorScheme: "light" | "dark"): Promise<string[]> {
    return this.findings(width, colorScheme, ["serious", "critical"]);
  }

  /** The same with all findings of axe. */
  async violations(width: number, colorScheme: "light" | "dark"): Promise<string[]> {
    return this.findings(width, colorScheme, IMPACTS);
  }

  /**
   * All findings of axe, and overflow, on a phone, a desk and a wall, in both themes. Themes differ
   * in their colours only, so the other rules are checked in one of them.
   */
  async allViolations(name: string, isShown = (_of: string) => false): Promise<string[]> {
    const found: string[] = [];
    for (const width of [390, 1360, 2560]) {
      for (const theme of ["light", "dark"] as const) {
        const rules = theme === "dark" ? ["color-contrast"] : null;
        const all = await this.findings(width, theme, IMPACTS, rules);
        found.push(...all.map((one) => `${width} px, ${theme}: ${one}`));
        const of = `${width}-${theme}`;
        if (HAS_ALL_SCREENSHOTS || isShown(of)) await this.screenshot(`${name}-${of}`);
      }
    }
    await this.page.setViewportSize({ width: 1360, height: 900 });
    await this.page.emulateMedia({ colorScheme: "light" });
    return found;
  }

  private async findings(
    width: number,
    colorScheme: "light" | "dark",
    impacts: readonly string[],
    rules: readonly string[] | null = null,
  ): Promise<string[]> {
    await this.page.setViewportSize({ width, height: 900 });
    await this.page.emulateMedia({ colorScheme });
    await settled(this.page);
    // A chart is drawn in its new size a moment later.
    let overflow = await this.overflow();
    for (const end = Date.now() + 10_000; overflow > 0 && Date.now() < end;) {
      await this.page.waitForTimeout(50);
      overflow = await this.overflow();
    }
    await this.page.evaluate(AXE);
    interface Finding {
      id: string;
      impact: string;
      nodes: { html: string }[];
    }
    const options = JSON.stringify(rules ? { runOnly: rules } : {});
    const { violations } = (await this.page.evaluate(`axe.run(${options})`)) as {
      violations: Finding[];
    };
    const reported = violations.filter((one) => impacts.includes(one.impact));
    const found = reported.map(
      (one) =>
        `${one.id}: ${one.nodes
          .map((node) => node.html)
          .slice(0, 3)
          .join(" ")}`,
    );
    return overflow > 0 ? [`${overflow} px too wide: ${await this.widest()}`, ...found] : found;
  }

  /** The innermost elements that are wider than the window. */
  private async widest(): Promise<string> {
    return this.page.evaluate(() => {
      const isWide = (one: Element) =>
        one.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
      const wide = [...document.body.querySelectorAll("*")].filter(isWide);
      const innermost = wide.filter((one) => ![...one.children].some(isWide));
      return innermost
        .slice(0, 5)
        .map((one) => `${one.tagName}.${one.getAttribute("class") ?? ""} ${one.textContent}`)
        .map((text) => text.slice(0, 80))
        .join("; ");
    });
  }

  /** Pixels by which the page is wider than the window. */
  async overflow(): Promise<number> {
    return this.page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    );
  }

  /** The background of an element, and that of a variable of the style sheet. */
  async backgrounds(element: Locator, variable: string): Promise<[string, string]> {
    return element.evaluate((one, variable) => {
      const sample = document.body.appendChild(document.createElement("i"));
      sample.style.backgroundColor = `var(${variable})`;
      const colours = [one, sample].map((of) => getComputedStyle(of).backgroundColor);
      sample.remove();
      return colours as [string, string];
    }, variable);
  }

  /** Writes a screenshot, if there is a directory for them. */
  async screenshot(name: string): Promise<void> {
    if (!SCREENSHOTS) return;
    const dir = resolve(import.meta.dirname, "../..", SCREENSHOTS);
    await mkdir(dir, { recursive: true });
    await settled(this.page);
    await this.page.screenshot({ path: join(dir, `${name}.png`), fullPage: true });
  }

  /** The sum of all cells on the screen. */
  async drawn(): Promise<number> {
    return Number(await this.page.locator(".heatmap").first().getAttribute("data-drawn"));
  }

  /** Colours on the screen at the centre of each cell, column by column, bottom first. */
  async cells(columns: number, rows: number): Promise<Colour[][]> {
    return this.page.evaluate(
      ([columns, rows]) => {
        const canvas = document.querySelector<HTMLCanvasElement>(".heatmap canvas")!;
        const [over, whole] = [document.querySelector(".heatmap .u-over")!, canvas].map((one) =>
          one.getBoundingClientRect(),
        ) as [DOMRect, DOMRect];
        const { data, width } = canvas
          .getContext("2d")!
          .getImageData(0, 0, canvas.width, canvas.height);
        return Array.from({ length: columns }, (_, column) =>
          Array.from({ length: rows }, (_, row) => {
            const x = Math.floor(
              (over.left - whole.left + (over.width * (column + 0.5)) / columns) * devicePixelRatio,
            );
            const y = Math.floor(
              (over.top - whole.top + over.height * (1 - (row + 0.5) / rows)) * devicePixelRatio,
            );
            const at = 4 * (y * width + x);
            return [data[at]!, data[at + 1]!, data[at + 2]!] as [number, number, number];
          }),
        );
      },
      [columns, rows] as const,
    );
  }
}
