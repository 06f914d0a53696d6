/** Completion at the caret: a metric, a label's name, a label's value, or a function. */

import { fetchMetricNames, getJson, type LimitedList, type MetricInfo } from "./api";
import { parseContext, type CompletionContext, type InputSyntax } from "./completionContext";
import { metricSelector, quoted } from "./selector";

export interface Suggestion {
  /** The whole text once it is accepted, and the caret in it. */
  text: string;
  caret: number;
  /** What the list shows. */
  name: string;
  about: string;
  /** Something has to follow: the next suggestions are shown at once. */
  continues: boolean;
}

/** A function, and the form of a call. */
interface FunctionInfo {
  name: string;
  call: string;
}

/** Suggestions in a list. */
const MAX_SUGGESTIONS = 50;

/** Metric names and functions of the server, fetched when they are first needed. */
export class MetricCatalog {
  private list: Promise<LimitedList<MetricInfo>> | null = null;
  private readonly functionsOf = new Map<InputSyntax, Promise<readonly FunctionInfo[]>>();

  /** Metrics whose name may contain a word. */
  async names(word: string, signal: AbortSignal): Promise<readonly MetricInfo[]> {
    this.list ??= forgetFailure(fetchMetricNames, () => (this.list = null));
    const { isTruncated, items } = await this.list;
    if (!isTruncated) return items;
    const parameters = { search: word, limit: 20 * MAX_SUGGESTIONS };
    return (await getJson<{ names: MetricInfo[] }>("/v1/metric_names", parameters, signal)).names;
  }

  functions(language: InputSyntax): Promise<readonly FunctionInfo[]> {
    interface FunctionsJson {
      functions: (FunctionInfo & { experimental: boolean })[];
    }
    let functions = this.functionsOf.get(language);
    if (!functions) {
      const fetchStable = async () => {
        const response = await getJson<FunctionsJson>("/v1/functions", { language });
        return response.functions.filter((one) => !one.experimental);
      };
      functions = forgetFailure(fetchStable, () => this.functionsOf.delete(language));
      this.functionsOf.set(language, functions);
    }
    return functions;
  }
}

/** A failed request is not cached. */
async function forgetFailure<T>(send: () => Promise<T>, forget: () => void): Promise<T> {
  try {
    return await send();
  } catch (error) {
    forget();
    throw error;
  }
}

interface CompletionQuery {
  text: string;
  caret: number;
  syntax: InputSyntax;
  /** Kinds of series to suggest; all kinds if undefined. */
  kinds?: readonly string[];
  catalog: MetricCatalog;
  signal: AbortSignal;
}

export async function complete(query: CompletionQuery): Promise<Suggestion[]> {
  const { text, caret, syntax, signal } = query;
  const context = parseContext(text, caret, syntax);
  if (!context) return [];
  const insert = inserter(text, caret, context);
  switch (context.at) {
    case "name":
    case "word":
      return completeWord(query, context, insert);
    case "label": {
      interface LabelsJson {
        labels: { name: string; values: number }[];
      }
      const parameters = searchParameters(context);
      const { labels } = await getJson<LabelsJson>("/v1/labels", parameters, signal);
      const tail = { matcher: '="', bare: "", tag: ":" }[context.form];
      return labels.map(({ name, values }) =>
        insert(name, tail, { name, about: `${values} values`, continues: tail !== "" }),
      );
    }
    case "value": {
      interface LabelValuesJson {
        values: { value: string; series: number }[];
      }
      const path = `/v1/label/${encodeURIComponent(context.label)}/values`;
      const parameters = searchParameters(context);
      const { values } = await getJson<LabelValuesJson>(path, parameters, signal);
      const isTag = context.form === "tag";
      const tail = isTag ? "" : text.slice(caret).includes("}") ? '"' : '"}';
      return values.map(({ value, series }) => {
        const about = `${series} series`;
        return insert(isTag ? value : escaped(value), tail, {
          name: value,
          about,
          continues: false,
        });
      });
    }
  }
}

type InsertText = (
  word: string,
  tail: string,
  shown: Pick<Suggestion, "name" | "about" | "continues">,
) => Suggestion;

/** Replaces the word at the caret. */
function inserter(text: string, caret: number, context: CompletionContext): InsertText {
  const { from } = context;
  // A value may contain blanks and slashes; it ends at a quote, a brace or a comma.
  const isQuotedValue = context.at === "value" && context.form === "matcher";
  const remainder = isQuotedValue ? /^(?:[^"\\},]|\\.)*/ : /^[\w:.-]*/;
  const rest = text.slice(caret).replace(remainder, "");
  return (word, tail, shown) => {
    const head = text.slice(0, from) + word + tail;
    // The quote may be there already.
    const end = tail.startsWith('"') ? rest.replace(/^"/, "") : rest;
    return { ...shown, text: head + end, caret: head.length };
  };
}

async function completeWord(
  { syntax, kinds, catalog, signal }: CompletionQuery,
  context: CompletionContext & { at: "name" | "word" },
  insert: InsertText,
): Promise<Suggestion[]> {
  const word = context.written.trim().toLowerCase();
  const matches = (name: string) => name.toLowerCase().includes(word);
  const suggestions: Suggestion[] = [];
  if (context.at === "name" || syntax !== "caql") {
    const all = await catalog.names(word, signal);
    const allowed = all.filter((one) => !kinds || kinds.includes(one.kind));
    // A name has one entry for each unit.
    const byName = new Map(allowed.map((one) => [one.name, one]));
    for (const { name, kind, unit, series } of byName.values()) {
      if (!matches(name)) continue;
      const about = `${kind}${unit ? `, ${unit}` : ""}, ${series} series`;
      // In PromQL a plain name has no dots.
      const isDotted = syntax === "promql" && name.includes(".");
      const plain = isDotted ? `{${quoted(name)}}` : metricSelector(name);
      const isQuoted = context.at === "name" && context.quoted;
      suggestions.push(
        insert(isQuoted ? escaped(name) : plain, "", { name, about, continues: false }),
      );
    }
  }
  if (context.at === "word") {
    for (const { name, call } of await catalog.functions(syntax)) {
      if (!matches(name)) continue;
      suggestions.push(insert(`${name}(`, "", { name, about: call, continues: true }));
    }
  }
  // Names that begin with the word come first.
  const rank = (one: Suggestion) => (one.name.toLowerCase().startsWith(word) ? 0 : 1);
  suggestions.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  return suggestions.slice(0, MAX_SUGGESTIONS);
}

function searchParameters(context: CompletionContext & { metric: string }): Record<string, string> {
  const isPlain = /^[A-Za-z_:][\w:.]*$/.test(context.metric);
  const isQuotedValue = context.at === "value" && context.form === "matcher";
  const text = isQuotedValue ? context.written.replace(/\\(.)/g, "$1") : context.written;
  const selector = isPlain ? { selector: context.metric } : {};
  return { search: text, limit: String(MAX_SUGGESTIONS), ...selector };
}

/** Escaped for a string in double quotes. */
function escaped(text: string): string {
  return quoted(text).slice(1, -1);
}
