/** Selectors for names and values with any characters (docs/selectors.md). */

/** A quoted string. JSON's escapes are a subset of those of selectors. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}

/** A selector of a metric. A name with special characters is quoted. */
export function metricSelector(name: string): string {
  return /^[a-zA-Z_:][\w:.]*$/.test(name) ? name : `{${quoted(name)}}`;
}

/** Adds a matcher to a selector. */
export function addMatcher(selector: string, label: string, value: string): string {
  const trimmed = selector.trim();
  // A tag search; `[exact]` takes stars literally.
  if (/^(and|or|not)\(/.test(trimmed))
    return `and(${trimmed},${label}:[exact]"${value.replace(/[\\"]/g, "\\$&")}")`;
  const matcher = `${label}=${quoted(value)}`;
  const brace = trimmed.indexOf("{");
  if (brace < 0) return `${trimmed}{${matcher}}`;
  const at = trimmed.indexOf(matcher, brace);
  if (at > 0 && /[{, ]/.test(trimmed[at - 1]!)) return trimmed;
  const inside = trimmed.slice(brace + 1).trimStart();
  return `${trimmed.slice(0, brace)}{${matcher}${inside === "}" ? "" : ","}${inside}`;
}
