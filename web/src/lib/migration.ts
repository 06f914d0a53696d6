/**
 * Links of earlier versions are migrated on read: their queries get the current names.
 *
 * The server migrates stored dashboards with the same table and rules
 * (`crates/api/src/dashboards/migration.rs`). Renamed are metrics and functions as whole words and
 * whole strings, and labels of these metrics within `{…}` and in groupings.
 */

import renames from "../../../crates/api/src/dashboards/renames.json";

interface LabelRename {
  /** New names; absent: any metric. */
  metrics?: string[];
  label: string;
  name?: string;
  values?: Record<string, string>;
}

const NAMES: ReadonlyMap<string, string> = new Map(Object.entries(renames.names));
const LABELS: readonly LabelRename[] = renames.labels as LabelRename[];
const VIEWS: ReadonlyMap<string, string> = new Map(Object.entries(renames.views));
const SETTINGS: ReadonlyMap<string, string> = new Map(Object.entries(renames.settings));

/** Token of a query, as written: a word, a string with its quotes, or another character. */
interface Token {
  kind: "word" | "string" | "other";
  text: string;
}

const TOKEN = /([A-Za-z0-9_:.]+)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)|./gsu;
const GROUPING = /^(by|without|on|ignoring|group_left|group_right)$/;

export function migrateView(path: string): string {
  return VIEWS.get(path) ?? path;
}

/** Migrates name and value of a link's setting. */
export function migrateSetting(
  name: string,
  value: string,
  hasTime: boolean,
): readonly [string, string] {
  const isQuery = renames.querySettings.includes(name);
  return [SETTINGS.get(name) ?? name, isQuery ? migrateQuery(value, hasTime) : value];
}

const KIND_MATCHER = /(\b__kind\s*(?:=~|!~|!=|=)\s*(["'`]))([^"'`]*)\2/g;
const KIND_TAG = /(\b__kind:)([A-Za-z-]+)/g;

/** Migrates the kinds of a query whose other names are current. */
export function migrateKinds(text: string): string {
  return text
    .replace(
      KIND_MATCHER,
      (_, start: string, quote: string, value: string) =>
        start + renamedValue(null, "__kind", value) + quote,
    )
    .replace(
      KIND_TAG,
      (_, start: string, value: string) => start + renamedValue(null, "__kind", value),
    );
}

/** Migrates a query. `hasTime` says whether the language has `time()`. */
export function migrateQuery(text: string, hasTime: boolean): string {
  const tokens = [...text.matchAll(TOKEN)].map(([text, word, string]): Token => ({
    kind: word !== undefined ? "word" : string !== undefined ? "string" : "other",
    text,
  }));
  let out = "";
  /** Where a parenthesis closes after a selector. */
  let closesBefore = -1;
  for (let at = 0; at < tokens.length;) {
    if (closesBefore === at) out += ")";
    const { kind, text } = tokens[at]!;
    let part = text;
    let end = at + 1;
    if (kind === "word" && tagLabel(text)) [part, end] = migrateTag(tokens, at);
    else if (kind === "word" && GROUPING.test(text)) [part, end] = migrateGrouping(tokens, at);
    else if (kind === "word") {
      part = rename(text);
      const selectorEnd =
        text === renames.uptime && hasTime ? instantSelectorEnd(tokens, at) : null;
      if (selectorEnd !== null) [part, closesBefore] = [`(time() - ${part}`, selectorEnd];
    } else if (text === "{") [part, end] = migrateMatchers(tokens, at);
    else if (kind === "string") {
      // CAQL passes selectors as strings.
      const isSelector = !hasTime && text.includes("(__");
      const content = contentOf(text);
      part = inQuotes(text, isSelector ? migrateQuery(content, hasTime) : rename(content));
    }
    out += part;
    at = end;
  }
  return closesBefore === tokens.length ? `${out})` : out;
}

const rename = (name: string) => NAMES.get(name) ?? name;
const contentOf = (string: string) => string.slice(1, -1);
const inQuotes = (string: string, content: string) => string[0]! + content + string[0]!;
const isBlank = (token: Token) => /^\s$/.test(token.text);

/** The current name of a token that may be a metric. */
function metricName(token: Token | undefined): string | null {
  if (!token || token.kind === "other") return null;
  return rename(token.kind === "word" ? token.text : contentOf(token.text));
}

function skipBlanks(tokens: readonly Token[], at: number): number {
  while (at < tokens.length && isBlank(tokens[at]!)) at++;
  return at;
}

const isOperator = (tokens: readonly Token[], at: number) =>
  /^[=!]$/.test(tokens[skipBlanks(tokens, at)]?.text ?? "");

/** End of the selector whose metric is at `at`; null for a range selector. */
function instantSelectorEnd(tokens: readonly Token[], at: number): number | null {
  let end = at + 1;
  if (tokens[skipBlanks(tokens, end)]?.text === "{") {
    end = tokens.findIndex(({ text }, index) => index > at && text === "}") + 1;
    if (end === 0) return null;
  }
  return tokens[skipBlanks(tokens, end)]?.text === "[" ? null : end;
}

/** The label of a `label:value` if all metrics have it. */
function tagLabel(word: string): string | null {
  const label = word.slice(0, Math.max(word.indexOf(":"), 0));
  return labelRenames(null, label).length > 0 ? label : null;
}

/** `__kind:value`, a condition of a selector. A value may have hyphens. */
function migrateTag(tokens: readonly Token[], at: number): [string, number] {
  const text = tokens[at]!.text;
  const label = tagLabel(text)!;
  let value = text.slice(label.length + 1);
  let end = at + 1;
  for (; tokens[end]?.text === "-" && tokens[end + 1]?.kind === "word"; end += 2) {
    value += `-${tokens[end + 1]!.text}`;
  }
  return [`${label}:${renamedValue(null, label, value)}`, end];
}

/** `by (…)`: labels of any metric of the query. */
function migrateGrouping(tokens: readonly Token[], at: number): [string, number] {
  let out = tokens[at]!.text;
  if (tokens[skipBlanks(tokens, at + 1)]?.text !== "(") return [out, at + 1];
  const metrics = tokens.map(metricName);
  for (let index = at + 1; index < tokens.length; index++) {
    const { kind, text } = tokens[index]!;
    if (text === ")") return [out, index];
    const found = metrics.map((name) => renamedLabel(name, text)).find((name) => name !== null);
    out += kind === "word" ? (found ?? text) : text;
  }
  return [out, tokens.length];
}

/** `{…}`: labels of the metric before it, or of its `__name__`. */
function migrateMatchers(tokens: readonly Token[], open: number): [string, number] {
  const close = tokens.findIndex(({ text }, index) => index > open && text === "}");
  const end = close < 0 ? tokens.length : close;
  const before = tokens.slice(0, open).findLast((token) => !isBlank(token));
  const owner =
    (before?.kind === "word" ? metricName(before) : null) ?? nameWithin(tokens, open, end);
  let [out, label]: [string, string | null] = ["", null];
  for (let at = open; at < end; at++) {
    const { kind, text } = tokens[at]!;
    if (kind === "word" && label === null && isOperator(tokens, at + 1)) {
      label = text;
      out += renamedLabel(owner, text) ?? text;
    } else if (kind === "string") {
      const value = contentOf(text);
      const isName = label === null || label === "__name__";
      out += inQuotes(text, isName ? rename(value) : renamedValue(owner, label!, value));
    } else {
      if (text === ",") label = null;
      out += text;
    }
  }
  return [out, end];
}

function nameWithin(tokens: readonly Token[], open: number, end: number): string | null {
  const within = tokens.slice(open, end);
  const named = within.findIndex(({ text }) => text === "__name__");
  if (named >= 0) return metricName(within.slice(named).find(({ kind }) => kind === "string"));
  const first = within[1];
  if (first?.kind !== "string" || isOperator(tokens, open + 2)) return null;
  return metricName(first);
}

function labelRenames(metric: string | null, label: string): LabelRename[] {
  return LABELS.filter(
    (one) => one.label === label && (one.metrics?.some((name) => name === metric) ?? true),
  );
}

function renamedLabel(metric: string | null, label: string): string | null {
  return labelRenames(metric, label).find(({ name }) => name !== undefined)?.name ?? null;
}

/** Renames each alternative of a regex, or the single value. */
function renamedValue(metric: string | null, label: string, value: string): string {
  const known = labelRenames(metric, label).flatMap(({ values }) => Object.entries(values ?? {}));
  const renamed = new Map(known);
  return value
    .split("|")
    .map((one) => renamed.get(one) ?? one)
    .join("|");
}
