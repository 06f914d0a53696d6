/** What can stand where the caret is: a metric, a label's name, a label's value, or a function. */

import { ask, names, type Found, type Name } from "./api";
import { ofMetric, quoted } from "./selector";
import { spot, type Spot, type Written } from "./spot";

export interface Offer {
  /** The whole text when it is taken, and the caret in it. */
  text: string;
  caret: number;
  /** What is shown. */
  name: string;
  about: string;
  /** Whether something has to follow: the next offers come at once. */
  goesOn: boolean;
}

/** A function, and how a call of it is written. */
interface Callable {
  name: string;
  call: string;
}

/** What the server knows, asked when it is first needed. */
export class Known {
  private found: Promise<Found<Name>> | null = null;
  private readonly callable = new Map<Written, Promise<readonly Callable[]>>();

  /** Those that may have a word in them. */
  async names(word: string, signal: AbortSignal): Promise<readonly Name[]> {
    this.found ??= retried(names, () => (this.found = null));
    const { cut, items } = await this.found;
    if (!cut) return items;
    // There are more than the page was told of.
    return (await ask<{ names: Name[] }>("/v1/names", { text: word, limit: 20 * MOST }, signal))
      .names;
  }

  functions(language: Written): Promise<readonly Callable[]> {
    interface Told {
      functions: (Callable & { experimental: boolean })[];
    }
    let found = this.callable.get(language);
    if (!found) {
      const usual = () =>
        ask<Told>("/v1/functions", { language }).then((told) =>
          told.functions.filter((one) => !one.experimental),
        );
      found = retried(usual, () => this.callable.delete(language));
      this.callable.set(language, found);
    }
    return found;
  }
}

/** What was not to be had is asked for again the next time. */
async function retried<T>(asked: () => Promise<T>, forget: () => void): Promise<T> {
  try {
    return await asked();
  } catch (error) {
    forget();
    throw error;
  }
}

/** Offers at the most. */
const MOST = 50;

interface Asking {
  text: string;
  caret: number;
  language: Written;
  /** Kinds of series that can be chosen; all, if none are named. */
  kinds?: readonly string[];
  known: Known;
  signal: AbortSignal;
}

export async function complete({
  text,
  caret,
  language,
  kinds,
  known,
  signal,
}: Asking): Promise<Offer[]> {
  const found = spot(text, caret, language);
  if (!found) return [];
  const put = placed(text, caret, found);
  switch (found.at) {
    case "name":
    case "word":
      return words(found, language, kinds, known, put, signal);
    case "label": {
      const answer = await ask<{ labels: { name: string; values: number }[] }>(
        "/v1/labels",
        searched(found),
        signal,
      );
      const tail = { matcher: '="', alone: "", tag: ":" }[found.form];
      return answer.labels.map((one) =>
        put(one.name, tail, { name: one.name, about: `${one.values} values`, goesOn: tail !== "" }),
      );
    }
    case "value": {
      const path = `/v1/label/${encodeURIComponent(found.label)}/values`;
      const answer = await ask<{ values: { value: string; series: number }[] }>(
        path,
        searched(found),
        signal,
      );
      const end = found.form === "tag" ? "" : text.slice(caret).includes("}") ? '"' : '"}';
      return answer.values.map((one) => {
        const value = found.form === "tag" ? one.value : inQuotes(one.value);
        return put(value, end, { name: one.value, about: `${one.series} series`, goesOn: false });
      });
    }
  }
}

type Put = (word: string, tail: string, offer: Pick<Offer, "name" | "about" | "goesOn">) => Offer;

/** Puts a word where one was begun, and drops what was left of that. */
function placed(text: string, caret: number, found: Spot): Put {
  const { from } = found;
  // A value may have blanks and slashes in it, up to where the quote or what follows is.
  const begun =
    found.at === "value" && found.form === "matcher" ? /^(?:[^"\\},]|\\.)*/ : /^[\w:.-]*/;
  const rest = text.slice(caret).replace(begun, "");
  return (word, tail, offer) => {
    const head = text.slice(0, from) + word + tail;
    // A quote that is there already is not written twice.
    return {
      ...offer,
      text: head + (tail.startsWith('"') ? rest.replace(/^"/, "") : rest),
      caret: head.length,
    };
  };
}

async function words(
  found: Spot,
  language: Written,
  kinds: readonly string[] | undefined,
  known: Known,
  put: Put,
  signal: AbortSignal,
): Promise<Offer[]> {
  const word = found.written.trim().toLowerCase();
  const fits = (name: string) => name.toLowerCase().includes(word);
  const offers: Offer[] = [];
  if (found.at === "name" || language !== "caql") {
    // One name can be measured in two units.
    const apart = new Map(
      (await known.names(word, signal))
        .filter((one) => !kinds || kinds.includes(one.kind))
        .map((one) => [one.name, one]),
    );
    for (const one of apart.values()) {
      if (!fits(one.name)) continue;
      const about = `${one.kind}${one.unit ? `, ${one.unit}` : ""}, ${one.series} series`;
      // PromQL takes a dot for the end of a name.
      const plain =
        language === "promql" && one.name.includes(".")
          ? `{${quoted(one.name)}}`
          : ofMetric(one.name);
      const written = found.at === "name" && found.quoted ? inQuotes(one.name) : plain;
      offers.push(put(written, "", { name: one.name, about, goesOn: false }));
    }
  }
  if (found.at === "word") {
    for (const one of await known.functions(language)) {
      if (fits(one.name))
        offers.push(put(`${one.name}(`, "", { name: one.name, about: one.call, goesOn: true }));
    }
  }
  // What begins so comes first.
  const rank = (offer: Offer) => (offer.name.toLowerCase().startsWith(word) ? 0 : 1);
  offers.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  return offers.slice(0, MOST);
}

function searched(found: Spot & { metric: string }): Record<string, string> {
  const selector = /^[A-Za-z_:][\w:.]*$/.test(found.metric) ? { selector: found.metric } : {};
  const text =
    found.at === "value" && found.form === "matcher"
      ? found.written.replace(/\\(.)/g, "$1")
      : found.written;
  return { text, limit: String(MOST), ...selector };
}

/** As it stands between double quotes. */
function inQuotes(text: string): string {
  return quoted(text).slice(1, -1);
}
