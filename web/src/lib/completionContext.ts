/** The syntactic context of the caret in a selector or a query: the word and where it starts. */

import type { QueryLanguage } from "./query";

/** `host="a"` in a selector, `by (host)` without a value, `host:a` in a tag search. */
export type LabelSyntax = "matcher" | "bare" | "tag";

export type CompletionContext = { written: string; from: number } &
  /** A metric's name; `quoted` if the caret is in a string. */
  (
    | { at: "name"; quoted: boolean }
    /** A function, or the plain name of a metric. */
    | { at: "word" }
    /** A label; `metric` is empty if the label may be of any metric. */
    | { at: "label"; metric: string; form: LabelSyntax }
    | { at: "value"; metric: string; label: string; form: LabelSyntax }
  );

/** The syntax of a text field. */
export type InputSyntax = QueryLanguage | "selector";

/** A bracket that is open at the caret, its position, and the word before it. */
interface OpenBracket {
  bracket: string;
  at: number;
  before: string;
}

const GROUPING = /^(by|without|on|ignoring|group_left|group_right)$/;
const WORD = /[\w:.]*$/;

export function parseContext(
  text: string,
  caret: number,
  language: InputSyntax,
): CompletionContext | null {
  const before = text.slice(0, caret);
  const { open, quote, isComment } = scanBrackets(before, language);
  if (isComment) return null;
  const top = open.at(-1);
  if (language === "caql") return quote === null ? word(before) : inFind(before, quote, top);
  if (quote !== null) return top?.bracket === "{" ? inQuotes(before, quote, top) : null;
  if (top?.bracket === "{") {
    const inside = before.slice(top.at + 1);
    const label = /(?:^|,)\s*([\w.:]*)$/.exec(inside)?.[1];
    return label === undefined
      ? null
      : {
          at: "label",
          metric: top.before,
          form: "matcher",
          written: label,
          from: caret - label.length,
        };
  }
  if (top?.bracket === "[") return null;
  if (language === "selector") {
    if (top || /[}\])]/.test(before)) return null;
    const name = before.trimStart();
    return { at: "name", quoted: false, written: name, from: caret - name.length };
  }
  const last = word(before);
  if (top && GROUPING.test(top.before))
    return { at: "label", metric: "", form: "bare", written: last.written, from: last.from };
  // After a number comes a unit, not a name.
  return /^\d/.test(last.written) ? null : last;
}

function word(before: string): CompletionContext {
  const written = WORD.exec(before)![0];
  return { at: "word", written, from: before.length - written.length };
}

/** In a string within braces: a label's value, or a quoted name. */
function inQuotes(
  before: string,
  quote: number,
  { at, before: metric }: OpenBracket,
): CompletionContext | null {
  const [inside, written, from] = [before.slice(at + 1, quote), before.slice(quote + 1), quote + 1];
  const label = /(?:^|,)\s*([\w.:]+)\s*(?:=~|!~|!=|=)\s*$/.exec(inside)?.[1];
  if (label) return { at: "value", metric, label, form: "matcher", written, from };
  return inside.trim() === "" ? { at: "name", quoted: true, written, from } : null;
}

/** In an argument of `find`: the metric's name, then a tag search. */
function inFind(
  before: string,
  quote: number,
  call: OpenBracket | undefined,
): CompletionContext | null {
  if (!call || !/^(graphite:)?find(:|$)/.test(call.before)) return null;
  const [argument, written, from] = [
    before.slice(call.at + 1, quote),
    before.slice(quote + 1),
    quote + 1,
  ];
  if (argument.trim() === "") return { at: "name", quoted: true, written, from };
  const metric = /^\s*["']([^"']*)["']\s*,\s*$/.exec(argument)?.[1];
  if (metric === undefined) return null;
  const tag = /(?:^|[(,])\s*(?:([\w.-]+):)?([^(),:]*)$/.exec(written);
  if (!tag) return null;
  const [, label, text = ""] = tag;
  const position = { written: text, from: before.length - text.length };
  return label
    ? { at: "value", metric, label, form: "tag", ...position }
    : { at: "label", metric, form: "tag", ...position };
}

/** Brackets that are open at the end, and the position of an unclosed quote. */
function scanBrackets(
  before: string,
  language: InputSyntax,
): { open: OpenBracket[]; quote: number | null; isComment: boolean } {
  const open: OpenBracket[] = [];
  for (let at = 0; at < before.length; at++) {
    const char = before[at]!;
    if (char === '"' || char === "'" || char === "`") {
      const end = closingQuote(before, at);
      if (end === null) return { open, quote: at, isComment: false };
      at = end;
    } else if (char === "#" && language === "promql") {
      const end = before.indexOf("\n", at);
      if (end < 0) return { open, quote: null, isComment: true };
      at = end;
    } else if ("({[".includes(char)) {
      open.push({ bracket: char, at, before: WORD.exec(before.slice(0, at).trimEnd())![0] });
    } else if (")}]".includes(char)) open.pop();
  }
  return { open, quote: null, isComment: false };
}

function closingQuote(text: string, from: number): number | null {
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === "\\" && text[from] !== "`") at++;
    else if (text[at] === text[from]) return at;
  }
  return null;
}
