import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { colourSteps, ramp, STEPS } from "../src/lib/colour";

type Rgb = [number, number, number];

/** Dichromacy in linear light (Machado, Oliveira, Fernandes 2009, severity 1). */
const EYES: Record<string, readonly Rgb[]> = {
  everybody: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

const linear = (channel: number) =>
  channel / 255 <= 0.04045 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4;

function luminance(colour: Rgb, eyes: readonly Rgb[]): number {
  const light = colour.map(linear);
  const [r, g, b] = eyes.map((row) =>
    Math.min(
      Math.max(
        row.reduce((sum, part, at) => sum + part * light[at]!, 0),
        0,
      ),
      1,
    ),
  ) as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

test.each(
  Object.keys(EYES).flatMap(
    (eyes) =>
      [
        [eyes, false],
        [eyes, true],
      ] as const,
  ),
)("more is never lighter and darker in turn: %s, dark %s", (eyes, isDark) => {
  const bytes = new Uint8Array(ramp(isDark).buffer);
  const seen = Array.from({ length: STEPS }, (_, at) =>
    luminance([bytes[4 * at]!, bytes[4 * at + 1]!, bytes[4 * at + 2]!], EYES[eyes]!),
  );
  const way = isDark ? 1 : -1;
  // Neighbours may be as light as one another: a step of a channel is rounded.
  seen
    .slice(1)
    .forEach((next, at) => expect((next - seen[at]!) * way, `step ${at}`).toBeGreaterThan(-0.002));
  // The range of lightness allows many shades.
  expect(Math.abs(seen[STEPS - 1]! - seen[0]!)).toBeGreaterThan(0.5);
});

/** Colours of app.css in one of its themes. */
function colours(theme: "light" | "dark"): Record<string, Rgb> {
  const css = readFileSync(new URL("../src/app.css", import.meta.url), "utf8");
  const block = css.slice(theme === "light" ? 0 : css.indexOf('[data-theme="dark"]'));
  const found = block.slice(0, block.indexOf("}")).matchAll(/--([\w-]+): #(..)(..)(..);/g);
  return Object.fromEntries(
    [...found].map(([, name, ...hex]) => [name!, hex.map((two) => parseInt(two, 16)) as Rgb]),
  );
}

test.each(["light", "dark"] as const)(
  "lines and texts stand out from what is behind them, for all eyes: %s",
  (theme) => {
    const known = colours(theme);
    for (const eyes of Object.values(EYES)) {
      const contrast = (one: string, other: string) => {
        const [a, b] = [known[one]!, known[other]!].map((colour) => luminance(colour, eyes)) as [
          number,
          number,
        ];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      };
      for (const name of Object.keys(known).filter((name) =>
        /^(line-|text|harm$|accent$|note$)/.test(name),
      )) {
        expect(contrast(name, "card"), name).toBeGreaterThan(4.5);
      }
    }
  },
);

test("the legend of cells that all have one value says 1, not 1.7 in the middle", () => {
  const steps = colourSteps("log", 1, 1, () => new Float64Array());
  for (const step of [0, STEPS / 2, STEPS - 1]) expect(steps.countAt(step)).toBe(1);
  const two = colourSteps("log", 1, 4, () => new Float64Array());
  expect(two.countAt(STEPS - 1)).toBeCloseTo(4);
  expect(two.countAt((STEPS - 1) / 2)).toBeCloseTo(2);
});
