/** Where the caret is in a selector or a question: what is being written there, and from where on. */

import type { Language } from "./question";

/** How a label and its value are written: `host="a"`, alone as in `by (host)`, or `host:a` as in a tag search. */
export type Form = "matcher" | "alone" | "tag";

export type Spot = { written: string; from: number } &
  /** A metric's name, and whether it stands in quotes already. */
  (
    | { at: "name"; quoted: boolean }
    /** A function, or a metric's name where the language has it plain. */
    | { at: "word" }
    /** A label of a metric, or of any if that is empty. */
    | { at: "label"; metric: string; form: Form }
    | { at: "value"; metric: string; label: string; form: Form }
  );

/** Writing: a language of questions, or a selector by itself. */
export type Written = Language | "selector";

/** A bracket that is open at the caret: where it is, and the word before it. */
interface Open {
  bracket: string;
  at: number;
  before: string;
}

const GROUPING = /^(by|without|on|ignoring|group_left|group_right)$/;
const WORD = /[\w:.]*$/;

export function spot(text: string, caret: number, language: Written): Spot | null {
  const before = text.slice(0, caret);
  const { open, quote, isComment } = brackets(before, language);
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
  const found = word(before);
  if (found && top && GROUPING.test(top.before))
    return { at: "label", metric: "", form: "alone", written: found.written, from: found.from };
  // After a number comes its unit, not a name.
  return found && /^\d/.test(found.written) ? null : found;
}

function word(before: string): Spot {
  const written = WORD.exec(before)![0];
  return { at: "word", written, from: before.length - written.length };
}

/** In a text between braces: a label's value, or a name in quotes. */
function inQuotes(before: string, quote: number, { at, before: metric }: Open): Spot | null {
  const [inside, written, from] = [before.slice(at + 1, quote), before.slice(quote + 1), quote + 1];
  const label = /(?:^|,)\s*([\w.:]+)\s*(?:=~|!~|!=|=)\s*$/.exec(inside)?.[1];
  if (label) return { at: "value", metric, label, form: "matcher", written, from };
  return inside.trim() === "" ? { at: "name", quoted: true, written, from } : null;
}

/** In a text that `find` is given: first the metric's name, then a tag search. */
function inFind(before: string, quote: number, call: Open | undefined): Spot | null {
  if (!call || !/^(graphite:)?find(:|$)/.test(call.before)) return null;
  const [given, written, from] = [
    before.slice(call.at + 1, quote),
    before.slice(quote + 1),
    quote + 1,
  ];
  if (given.trim() === "") return { at: "name", quoted: true, written, from };
  const metric = /^\s*["']([^"']*)["']\s*,\s*$/.exec(given)?.[1];
  if (metric === undefined) return null;
  const tag = /(?:^|[(,])\s*(?:([\w.-]+):)?([^(),:]*)$/.exec(written);
  if (!tag) return null;
  const [, label, text = ""] = tag;
  const place = { written: text, from: before.length - text.length };
  return label
    ? { at: "value", metric, label, form: "tag", ...place }
    : { at: "label", metric, form: "tag", ...place };
}

/** Which brackets are open at the end, and where the quote is that has no other. */
function brackets(
  before: string,
  language: Written,
): { open: Open[]; quote: number | null; isComment: boolean } {
  const open: Open[] = [];
  for (let at = 0; at < before.length; at++) {
    const char = before[at]!;
    if (char === '"' || char === "'" || char === "`") {
      const end = closing(before, at);
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

function closing(text: string, from: number): number | null {
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === "\\" && text[from] !== "`") at++;
    else if (text[at] === text[from]) return at;
  }
  return null;
}
