/** A request of the page as a command for a shell. */

/** Quotes a word for POSIX shells. */
function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** `base` is the address of the page. A token is not copied: the command names its variable. */
export function curlCommand(
  base: string,
  path: string,
  parameters: Readonly<Record<string, string>>,
  hasToken: boolean,
): string {
  const url = new URL(path.replace(/^\//, ""), base).href;
  const parts = Object.entries(parameters).map(
    ([name, value]) => `--data-urlencode ${shellQuoted(`${name}=${value}`)}`,
  );
  const header = hasToken ? ['-H "Authorization: Bearer $TOPDECK_TOKEN"'] : [];
  return [`curl -sG ${shellQuoted(url)}`, ...header, ...parts].join(" \\\n  ");
}
