/** The metrics that a selector or a query in PromQL names. */

import type { OverviewRow } from "./overview";

/** A metric with labels that must be equal. */
export type MetricLabels = Pick<OverviewRow, "name" | "labels">;

/** Words of PromQL that are no metrics. */
const WORDS = new Set(["and", "or", "unless", "offset", "bool", "atan2", "inf", "nan"]);
const GROUPING = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)/gi;
const SELECTOR = /([a-zA-Z_:][\w:.]*)?\s*(?:\{((?:"(?:[^"\\]|\\.)*"|[^"}])*)\})?/g;
const NAME_IN_BRACES = /(?:^|,)\s*(?:__name__\s*=\s*)?("(?:[^"\\]|\\.)*")\s*(?:,|$)/;
const LABEL = /([a-zA-Z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*")/g;

/**
 * The metrics of a selector or of a query, with the labels that must be equal. Empty if there are
 * none, or if their language is another one: of such a chart nobody can say.
 */
export function metricsOf(text: string): MetricLabels[] {
  if (/^\s*(and|or|not)\(/.test(text)) return [];
  const query = text.replace(GROUPING, " ");
  return [...query.matchAll(SELECTOR)].flatMap((found) => {
    const [whole, word = "", braces = ""] = found;
    const isCall = /^\s*\(/.test(query.slice(found.index + whole.length)) && braces === "";
    // Of numbers with a unit, such as 5m, the unit is no metric.
    const isPart = /[\w:.]/.test(query[found.index - 1] ?? "");
    const isMetric = word !== "" && !isCall && !isPart && !WORDS.has(word.toLowerCase());
    const quoted = NAME_IN_BRACES.exec(braces)?.[1];
    const name = isMetric ? word : quoted && textOf(quoted);
    if (!name) return [];
    const pairs = [...braces.matchAll(LABEL)].filter(([, label]) => label !== "__name__");
    return [{ name, labels: Object.fromEntries(pairs.map(([, k, v]) => [k!, textOf(v!)])) }];
  });
}

function textOf(literal: string): string {
  try {
    return JSON.parse(literal) as string;
  } catch {
    // PromQL has further escapes.
    return literal.slice(1, -1);
  }
}
