/** Somebody who looks at the page: a browser of its own, and what can be read off the screen. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";

import { chromium, type Browser, type Page } from "playwright-core";

import type { Server } from "./server";

/** Given to the page as a text: its policy lets no script in. */
const AXE = readFileSync(
  resolve(import.meta.dirname, "../node_modules/axe-core/axe.min.js"),
  "utf8",
);

/** Red, green, blue. */
export type Colour = [number, number, number];

export class Visitor {
  /** What the page complained of, and what it asked of anybody else. */
  readonly troubles: string[] = [];

  private constructor(
    private readonly browser: Browser,
    private readonly server: Server,
    readonly page: Page,
  ) {
    page.on(
      "console",
      (message) => message.type() === "error" && this.troubles.push(message.text()),
    );
    page.on("pageerror", (error) => this.troubles.push(String(error)));
    page.on(
      "request",
      (request) =>
        request.url().startsWith(server.url) ||
        this.troubles.push(`asked elsewhere: ${request.url()}`),
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

  /** Explore, when its picture is there; the answer that it was drawn from was asked for by this address. */
  async explore(settings: Record<string, string>): Promise<URL> {
    const asked = this.page.waitForRequest((request) => request.url().includes("/v1/heatmap"));
    await this.open("explore", settings);
    await this.page.locator(".picture[data-drawn]").waitFor();
    return new URL((await asked).url());
  }

  /** What keeps people from using what is shown now, at a width and in light or dark: what is too wide, and what axe finds serious. */
  async obstacles(width: number, colorScheme: "light" | "dark"): Promise<string[]> {
    await this.page.setViewportSize({ width, height: 900 });
    await this.page.emulateMedia({ colorScheme });
    // Pictures follow the width when it has settled.
    await this.page.waitForTimeout(300);
    const beyond = await this.page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    );
    await this.page.evaluate(AXE);
    interface Finding {
      id: string;
      impact: string;
      nodes: { html: string }[];
    }
    const { violations } = (await this.page.evaluate("axe.run()")) as { violations: Finding[] };
    const serious = violations.filter(
      (one) => one.impact === "serious" || one.impact === "critical",
    );
    const found = serious.map(
      (one) =>
        `${one.id}: ${one.nodes
          .map((node) => node.html)
          .slice(0, 3)
          .join(" ")}`,
    );
    return beyond > 0 ? [`${beyond} px too wide`, ...found] : found;
  }

  /** What all cells on the screen say together. */
  async drawn(): Promise<number> {
    return Number(await this.page.locator(".picture").first().getAttribute("data-drawn"));
  }

  /** Colours in the middle of each cell, column after column, each from the bottom: what a person sees, not what was meant. */
  async cells(columns: number, rows: number): Promise<Colour[][]> {
    return this.page.evaluate(
      ([columns, rows]) => {
        const canvas = document.querySelector<HTMLCanvasElement>(".picture canvas")!;
        const [over, whole] = [document.querySelector(".picture .u-over")!, canvas].map((one) =>
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
