/** Metric names as a list to choose from. */

import type { MetricInfo } from "./api";

/** A metric: one line, however many kinds and units its series have. */
export interface MetricLine {
  name: string;
  series: number;
  /** Separated by commas; empty if unknown. */
  units: string;
  help?: string;
}

/** topdeck scrapes itself: under another name, in seconds. */
const ALIAS = /^(topdeck_.*)_seconds$/;

/** One line per name, in the order of the names; a metric of topdeck once. */
export function listMetrics(
  metrics: readonly Pick<MetricInfo, "name" | "series" | "unit" | "help">[],
): MetricLine[] {
  const names = new Set(metrics.map((one) => one.name));
  const lines = new Map<string, { series: number; units: Set<string>; help?: string }>();
  for (const { name, series, unit, help } of metrics) {
    const original = ALIAS.exec(name)?.[1];
    if (original !== undefined && names.has(original)) continue;
    const line = lines.get(name) ?? { series: 0, units: new Set() };
    line.series += series;
    if (unit) line.units.add(unit);
    if (help) line.help ??= help;
    lines.set(name, line);
  }
  return [...lines].map(([name, { series, units, help }]) => {
    const line = { name, series, units: [...units].join(", ") };
    return help === undefined ? line : { ...line, help };
  });
}

/** Lines that contain all words of a filter, in the name or the help text. */
export function filterMetrics(lines: readonly MetricLine[], filter: string): MetricLine[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return lines.filter(({ name, help = "" }) => {
    const text = `${name} ${help}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** Parts of a name, after each of which a line may end. */
export function nameParts(name: string): string[] {
  return name.match(/[^_.:/-]*[_.:/-]+|[^_.:/-]+$/g) ?? [name];
}
