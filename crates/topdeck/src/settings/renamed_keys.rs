//! Keys of the settings file in earlier versions; they are refused with their new names.

use role::settings::RenamedKey;

/// All renamed keys, by table. `CHANGELOG.md` has the same under *Renamed*.
pub(crate) const RENAMED_KEYS: &[RenamedKey] = &[
    row("", "data", "data_dir"),
    row("", "acknowledge", "durability"),
    row("", "interval", "collection_interval"),
    row("", "site", "remote"),
    row("", "silence", "absence"),
    row("http", "hosts", "allowed_hosts"),
    row("http.limits", "body_bytes", "max_body_bytes"),
    row("http.limits", "bodies_bytes", "max_buffered_body_bytes"),
    row("http.limits", "answers_bytes", "max_buffered_response_bytes"),
    row("http.limits", "body_time", "body_read_timeout"),
    row("http.limits", "head_bytes", "max_header_bytes"),
    row("http.limits", "head_time", "header_read_timeout"),
    row("http.limits", "request_time", "request_timeout"),
    row("http.limits", "write_time", "write_timeout"),
    row("http.limits", "idle_time", "idle_timeout"),
    row("http.limits", "connections", "max_connections"),
    row("http.limits", "queries", "max_concurrent_queries"),
    row("http.limits", "query_bytes", "max_query_memory"),
    row("statsd", "series", "max_series"),
    row("host", "hiccup_period", "hiccup_interval"),
    row("host", "programs", "shm_metrics"),
    row("host", "programs_period", "shm_scrape_interval"),
    row("host", "shm_topdecks", "shm_other_topdecks"),
    row("journal", "size", "max_size"),
    row("store", "keep", "retention"),
    row("store", "series", "max_series"),
    row("store", "producer_series", "max_producer_series"),
    row("store", "metric_series", "max_metric_series"),
    row("store", "label_values", "max_label_values"),
    row("store", "head", "max_head_size"),
];

const fn row(table: &'static str, old: &'static str, new: &'static str) -> RenamedKey {
    RenamedKey { table, old, new }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::node::ROLES;
    use crate::settings::Settings;

    const CHANGELOG: &str = include_str!("../../../../CHANGELOG.md");

    /// `docs/topdeck.toml` before the keys were renamed.
    const OLD: &str = include_str!("../../../../testdata/settings/topdeck-2be16b4.toml");

    /// Keys added after that file.
    const LATER: [&str; 7] = [
        "silence",
        "answers_bytes",
        "query_bytes",
        "producer_series",
        "metric_series",
        "label_values",
        "shm_topdecks",
    ];

    /// Errors of a file with one key.
    fn problems_of(table: &str, key: &str) -> String {
        let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        let text = format!("{header}{key} = 1\n");
        Settings::parse(&text, Path::new("/"), ROLES)
            .err()
            .map_or(String::new(), |found| found.to_string())
    }

    #[test]
    fn old_keys_are_refused_with_names_that_are_accepted() {
        for &RenamedKey { table, old, new } in RENAMED_KEYS {
            let found = problems_of(table, old);
            let expected = format!("{old:?} was renamed to {new:?}\n");
            assert!(found.contains(&expected), "[{table}] {old}: {found}");
            assert!(!found.contains("unknown key"), "[{table}] {old}: {found}");
            let is_listed = |line: &str| line.contains(old) && line.contains(new);
            assert!(CHANGELOG.lines().any(is_listed), "CHANGELOG.md: [{table}] {old}");
            // At most the value is wrong.
            let found = problems_of(table, new);
            assert!(!found.contains("unknown key"), "[{table}] {new}: {found}");
            assert!(!found.contains("renamed"), "[{table}] {new}: {found}");
        }
        assert!(problems_of("store", "heap").contains("unknown key"), "the test sees unknown keys");
    }

    #[test]
    fn settings_of_an_earlier_version_need_new_names_only() {
        let dir = std::env::temp_dir().join(format!("topdeck-renamed-{:x}", journal::random_id()));
        std::fs::create_dir_all(&dir).unwrap();
        for file in ["server.pem", "server.key", "clients.pem", "token", "site.pem"] {
            std::fs::write(dir.join(file), "x").unwrap();
        }
        let mut lines: Vec<String> =
            OLD.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned()).collect();
        // Both examples of a list of tables have the same name: [[site]] is refused as a whole.
        let problems = Settings::parse(&lines.join("\n"), &dir, ROLES).unwrap_err().to_string();
        let messages = problems.lines().filter(|line| line.starts_with("line "));
        let mut refused = 0;
        for message in messages {
            let (line, what) = message["line ".len()..].split_once(": ").unwrap();
            let line: usize = line.parse().unwrap();
            let quoted: Vec<&str> = what.split('"').collect();
            assert_eq!(quoted[2], " was renamed to ", "{message}");
            let (old, new) = (quoted[1], quoted[3]);
            match old {
                "site" => lines.iter_mut().filter(|line| *line == "[[site]]").for_each(|line| {
                    *line = format!("[[{new}]]");
                }),
                old => lines[line - 1] = lines[line - 1].replacen(old, new, 1),
            }
            refused += 1;
        }
        let in_file = |row: &&RenamedKey| !LATER.contains(&row.old);
        assert_eq!(refused, RENAMED_KEYS.iter().filter(in_file).count(), "{problems}");
        let settings = Settings::parse(&lines.join("\n"), &dir, ROLES);
        settings.unwrap_or_else(|reason| panic!("{reason}"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
