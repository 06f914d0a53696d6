//! Dashboards of schema 1 are migrated on read: their queries get the names of schema 2.
//!
//! `renames.json` has the names; the web UI migrates links with the same table
//! (`web/src/lib/migration.ts`). Renamed are metrics and functions as whole words and whole
//! strings, and labels of these metrics within `{…}` and in groupings. Other text is unchanged. In
//! dashboards of schema 2 only the values of built-in labels are renamed (`__kind`).

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde_json::Value;

/// Schema version with the current names.
const SCHEMA: u64 = 2;

static RENAMES: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("renames.json")).expect("BUG: the table is not valid JSON")
});

/// Names that are migrated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MigrationScope {
    /// All names of schema 1.
    AllNames,
    /// Values of labels that all metrics have. In schema 2 a metric of an old name is a sender's
    /// own: it is not renamed.
    BuiltInLabels,
}

/// Query language, as far as the migration distinguishes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueryLanguage {
    /// It has `time()`, and its strings are not selectors.
    Promql,
    /// Selectors and CAQL.
    Other,
}

/// Migrates a dashboard. Text that is not a dashboard is unchanged.
pub(super) fn migrate(text: String) -> String {
    let Ok(Value::Object(mut dashboard)) = serde_json::from_str(&text) else { return text };
    let scope = match dashboard.get("schema").map(Value::as_u64) {
        None | Some(Some(1)) => MigrationScope::AllNames,
        Some(Some(SCHEMA)) => MigrationScope::BuiltInLabels,
        _ => return text,
    };
    let panels = dashboard.get_mut("panels").and_then(Value::as_array_mut);
    let mut is_changed = false;
    for panel in panels.into_iter().flatten() {
        is_changed |= migrate_panel(panel, scope);
    }
    if !is_changed {
        return text;
    }
    dashboard.insert("schema".to_owned(), SCHEMA.into());
    Value::Object(dashboard).to_string()
}

fn migrate_panel(panel: &mut Value, scope: MigrationScope) -> bool {
    let language = match panel["language"].as_str() {
        Some("promql") => QueryLanguage::Promql,
        Some("metric" | "caql") => QueryLanguage::Other,
        _ => return false,
    };
    let Some(old) = panel["text"].as_str().map(str::to_owned) else { return false };
    let new = migrate_query(&old, language, scope);
    if new == old {
        return false;
    }
    // The default title of a panel is its query.
    if panel["title"].as_str() == Some(&old) {
        panel["title"] = new.clone().into();
    }
    panel["text"] = new.into();
    true
}

/// Token of a query, as written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// Text between quotes.
    Quoted(char, &'a str),
    Other(char),
}

fn tokenize(mut text: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_:.".contains(c);
    let mut tokens = Vec::new();
    while let Some(first) = text.chars().next() {
        let length = text.find(|c| !is_word(c)).unwrap_or(text.len());
        if length > 0 {
            tokens.push(Token::Word(&text[..length]));
            text = &text[length..];
            continue;
        }
        text = &text[first.len_utf8()..];
        let end = if "\"'`".contains(first) { string_end(text, first) } else { None };
        match end {
            Some(end) => {
                tokens.push(Token::Quoted(first, &text[..end]));
                text = &text[end + 1..];
            }
            None => tokens.push(Token::Other(first)),
        }
    }
    tokens
}

fn string_end(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if quote != '`' => is_escaped = true,
            _ if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

fn migrate_query(text: &str, language: QueryLanguage, scope: MigrationScope) -> String {
    Migration { tokens: tokenize(text), language, scope, out: String::new() }.run()
}

struct Migration<'a> {
    tokens: Vec<Token<'a>>,
    language: QueryLanguage,
    scope: MigrationScope,
    out: String,
}

impl<'a> Migration<'a> {
    fn run(mut self) -> String {
        let mut at = 0;
        // `topdeck_uptime_seconds` becomes `(time() - process_start_time_seconds)`: the position
        // after the selector, where the parenthesis closes.
        let mut closes_before = None;
        while at < self.tokens.len() {
            if closes_before == Some(at) {
                self.out.push(')');
            }
            at = match self.tokens[at] {
                Token::Word(word) if tag_label(word).is_some() => self.tag(at),
                Token::Word(word) if is_grouping(word) => self.grouping(at),
                Token::Word(word) => {
                    let is_uptime =
                        RENAMES["uptime"] == *word && self.scope == MigrationScope::AllNames;
                    let end = is_uptime.then(|| self.instant_selector_end(at));
                    if let Some(end) = end.flatten() {
                        self.out.push_str("(time() - ");
                        closes_before = Some(end);
                    }
                    let name = self.rename(word);
                    self.out.push_str(name);
                    at + 1
                }
                Token::Other('{') => self.matchers(at),
                // CAQL passes selectors as strings.
                Token::Quoted(quote, content)
                    if self.language == QueryLanguage::Other && content.contains("(__") =>
                {
                    let content = migrate_query(content, self.language, self.scope);
                    self.string(at, quote, &content)
                }
                Token::Quoted(quote, content) => {
                    let name = self.rename(content);
                    self.string(at, quote, name)
                }
                Token::Other(c) => {
                    self.out.push(c);
                    at + 1
                }
            };
        }
        if closes_before == Some(at) {
            self.out.push(')');
        }
        self.out
    }

    fn rename<'b>(&self, name: &'b str) -> &'b str {
        if self.scope == MigrationScope::AllNames { rename(name) } else { name }
    }

    /// `__kind:value`, a condition of a selector. A value may have hyphens.
    fn tag(&mut self, at: usize) -> usize {
        let Token::Word(word) = self.tokens[at] else { return at + 1 };
        let Some((label, start)) = tag_label(word) else { return at + 1 };
        let mut value = start.to_owned();
        let mut end = at + 1;
        while let [Token::Other('-'), Token::Word(rest), ..] = self.tokens[end..] {
            value.push('-');
            value.push_str(rest);
            end += 2;
        }
        self.out.push_str(label);
        self.out.push(':');
        self.out.push_str(&renamed_value("", label, &value));
        end
    }

    fn string(&mut self, at: usize, quote: char, content: &str) -> usize {
        self.out.push(quote);
        self.out.push_str(content);
        self.out.push(quote);
        at + 1
    }

    /// The first token from `at` that is not white space.
    fn next_token(&self, at: usize) -> Option<Token<'a>> {
        self.tokens.get(self.skip_blanks(at)).copied()
    }

    fn skip_blanks(&self, at: usize) -> usize {
        let blank = |token: &Token<'_>| matches!(token, Token::Other(c) if c.is_whitespace());
        at + self.tokens.iter().skip(at).take_while(|token| blank(token)).count()
    }

    /// End of the selector whose metric is at `at`; `None` for a range selector, or without
    /// `time()`.
    fn instant_selector_end(&self, at: usize) -> Option<usize> {
        let mut end = at + 1;
        if self.next_token(end) == Some(Token::Other('{')) {
            let close = |token: &Token<'_>| *token == Token::Other('}');
            end += self.tokens[end..].iter().position(close)? + 1;
        }
        let has_time = self.language == QueryLanguage::Promql;
        (has_time && self.next_token(end) != Some(Token::Other('['))).then_some(end)
    }

    /// `by (…)`: labels of any metric of the query.
    fn grouping(&mut self, at: usize) -> usize {
        let Token::Word(keyword) = self.tokens[at] else { return at + 1 };
        self.out.push_str(keyword);
        let open = self.skip_blanks(at + 1);
        if self.tokens.get(open) != Some(&Token::Other('(')) {
            return at + 1;
        }
        let is_all = self.scope == MigrationScope::AllNames;
        let names = self.tokens.iter().filter_map(metric_name).filter(|_| is_all);
        let names: Vec<&str> = names.collect();
        for at in at + 1..self.tokens.len() {
            match self.tokens[at] {
                Token::Word(label) => self.out.push_str(
                    names.iter().find_map(|metric| renamed_label(metric, label)).unwrap_or(label),
                ),
                Token::Quoted(quote, content) => {
                    self.string(at, quote, content);
                }
                Token::Other(')') => return at,
                Token::Other(c) => self.out.push(c),
            }
        }
        self.tokens.len()
    }

    /// `{…}`: labels of the metric before it, or of its `__name__`.
    fn matchers(&mut self, open: usize) -> usize {
        let end = self.tokens[open..].iter().position(|token| *token == Token::Other('}'));
        let end = end.map_or(self.tokens.len(), |length| open + length);
        let before = self.tokens[..open]
            .iter()
            .rfind(|token| !matches!(token, Token::Other(c) if c.is_whitespace()));
        let owner = before.filter(|token| matches!(token, Token::Word(_))).and_then(metric_name);
        let owner = owner.or_else(|| self.name_within(open, end));
        // Only built-in labels are renamed for the empty name.
        let owner = owner.filter(|_| self.scope == MigrationScope::AllNames).unwrap_or("");
        let mut label = None;
        for at in open..end {
            match self.tokens[at] {
                Token::Word(word) if label.is_none() && self.is_operator(at + 1) => {
                    label = Some(word);
                    self.out.push_str(renamed_label(owner, word).unwrap_or(word));
                }
                Token::Quoted(quote, content) => {
                    let new = match label {
                        None | Some("__name__") => self.rename(content).to_owned(),
                        Some(label) => renamed_value(owner, label, content),
                    };
                    self.string(at, quote, &new);
                }
                Token::Word(word) => self.out.push_str(word),
                Token::Other(c) => {
                    if c == ',' {
                        label = None;
                    }
                    self.out.push(c);
                }
            }
        }
        end
    }

    fn is_operator(&self, at: usize) -> bool {
        matches!(self.next_token(at), Some(Token::Other('=' | '!')))
    }

    fn name_within(&self, open: usize, end: usize) -> Option<&'a str> {
        let within = &self.tokens[open..end];
        let named = within.iter().position(|token| *token == Token::Word("__name__"));
        let is_string = |token: &&Token<'_>| matches!(token, Token::Quoted(..));
        match named {
            Some(at) => within[at..].iter().find(is_string).and_then(metric_name),
            None if self.is_operator(open + 2) => None,
            None => within.get(1).filter(is_string).and_then(metric_name),
        }
    }
}

fn is_grouping(word: &str) -> bool {
    ["by", "without", "on", "ignoring", "group_left", "group_right"].contains(&word)
}

/// Label and start of the value of a `label:value` whose label all metrics have.
fn tag_label(word: &str) -> Option<(&str, &str)> {
    word.split_once(':').filter(|(label, _)| label_renames("", label).next().is_some())
}

fn rename(name: &str) -> &str {
    RENAMES["names"][name].as_str().unwrap_or(name)
}

/// The current name of a token that may be a metric.
fn metric_name<'a>(token: &Token<'a>) -> Option<&'a str> {
    match token {
        Token::Word(name) | Token::Quoted(_, name) => Some(rename(name)),
        Token::Other(_) => None,
    }
}

fn label_renames(metric: &str, label: &str) -> impl Iterator<Item = &'static Value> {
    // A row without metrics is for the label of any metric.
    let of_metric = |of: &&Value| {
        let metrics = of["metrics"].as_array();
        of["label"] == *label && metrics.is_none_or(|names| names.iter().any(|n| *n == *metric))
    };
    let all = RENAMES["labels"].as_array().into_iter().flatten();
    all.filter(of_metric).collect::<Vec<_>>().into_iter()
}

fn renamed_label(metric: &str, label: &str) -> Option<&'static str> {
    label_renames(metric, label).find_map(|of| of["name"].as_str())
}

/// Renames each alternative of a regex, or the single value.
fn renamed_value(metric: &str, label: &str, value: &str) -> String {
    let of = |value| {
        let mut known = label_renames(metric, label);
        known.find_map(|of| of["values"][value].as_str()).unwrap_or(value)
    };
    value.split('|').map(of).collect::<Vec<_>>().join("|")
}
