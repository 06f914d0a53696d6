/** Selectors as they are written, whatever the names and values have in them: docs/selectors.md. */

/** A text in quotes. The escapes of JSON are among those of selectors, and a field of one line has no room for a line's end. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}

/** What picks a metric. A name that would mean something else is quoted. */
export function ofMetric(name: string): string {
  return /^[a-zA-Z_:][\w:.]*$/.test(name) ? name : `{${quoted(name)}}`;
}

/** The same series, but only those with a label of that value. */
export function narrowed(selector: string, label: string, value: string): string {
  const trimmed = selector.trim();
  // A tag search; stars in the value are no pattern.
  if (/^(and|or|not)\(/.test(trimmed))
    return `and(${trimmed},${label}:[exact]"${value.replace(/[\\"]/g, "\\$&")}")`;
  const matcher = `${label}=${quoted(value)}`;
  const brace = trimmed.indexOf("{");
  if (brace < 0) return `${trimmed}{${matcher}}`;
  const inside = trimmed.slice(brace + 1).trimStart();
  return `${trimmed.slice(0, brace)}{${matcher}${inside === "}" ? "" : ","}${inside}`;
}
