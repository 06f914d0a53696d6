/** Variables of a dashboard: `$host` in a panel stands for the value of a label that was chosen. */

import { getJson } from "./api";
import { quoted } from "./selector";

/** A variable, and the label whose values it has. */
export interface DashboardVariable {
  name: string;
  label: string;
}

const NAME = /^[A-Za-z_]\w*$/;
/** More values than that cannot be chosen from a list. */
const MAX_VALUES = 1_000;

/** Reads any JSON; what is no variable is dropped, and so is a second one of a name. */
export function parseVariables(json: unknown): DashboardVariable[] {
  if (!Array.isArray(json)) return [];
  const variables = new Map<string, DashboardVariable>();
  for (const one of json as unknown[]) {
    if (!one || typeof one !== "object") continue;
    const { name, label } = one as Record<string, unknown>;
    if (typeof name !== "string" || !NAME.test(name) || variables.has(name)) continue;
    if (typeof label === "string" && label !== "") variables.set(name, { name, label });
  }
  return [...variables.values()];
}

/** The variable of a label: `service.name` is `$service_name`. */
export function variableOf(label: string): DashboardVariable {
  const name = label.replace(/\W/g, "_");
  return { name: NAME.test(name) ? name : `_${name}`, label };
}

/** URL parameter with the chosen value; empty for all values. */
export function settingName({ name }: DashboardVariable): string {
  return `var_${name}`;
}

/**
 * Replaces variables in a selector or query. A matcher `label="$host"` or `label=~"$host"` matches
 * the value exactly, or everything if none is chosen; elsewhere the value itself is inserted, or
 * `*`.
 */
export function substitute(text: string, values: Readonly<Record<string, string>>): string {
  const names = Object.keys(values).sort((a, b) => b.length - a.length);
  return names.reduce((replaced, name) => {
    const value = values[name]!;
    const matcher = new RegExp(`=~?\\s*"\\$(?:${name}|\\{${name}\\})"`, "g");
    const variable = new RegExp(`\\$(?:${name}\\b|\\{${name}\\})`, "g");
    return replaced
      .replace(matcher, () => (value === "" ? '=~".*"' : `=${quoted(value)}`))
      .replace(variable, () => (value === "" ? "*" : value));
  }, text);
}

/** Values of a variable's label. */
export async function fetchValues(
  { label }: DashboardVariable,
  signal?: AbortSignal,
): Promise<string[]> {
  interface LabelValuesJson {
    values: { value: string }[];
  }
  const path = `/v1/label/${encodeURIComponent(label)}/values`;
  const { values } = await getJson<LabelValuesJson>(path, { limit: MAX_VALUES }, signal);
  return values.map((one) => one.value).sort((a, b) => a.localeCompare(b));
}
