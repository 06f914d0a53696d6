//! Reads a rule file, and the files that its rules name, relative to it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use disk::{OsDisk, read_file};
use rules::{RuleFile, parse_rule_file_with};

use crate::error::{AlertsError, Result};
use crate::rule_loader::rule_promql_options;

/// Maximum size of a file that a rule names: a day of windows of five minutes, of 100 streams.
const NAMED_BYTES_MAX: u64 = 64 << 20;

/// Reads and checks a rule file, whose problems have this name of it.
pub fn read_rule_file(path: &Path, name: &str) -> Result<RuleFile> {
    let failed = |cause| AlertsError::Read { path: path.to_owned(), cause };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let read = |named: &str| read_named(&dir.join(named));
    Ok(parse_rule_file_with(name, &text, &rule_promql_options(), &read))
}

/// Texts of a rule file and of the files that its rules name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFileTexts {
    /// The rule file.
    pub rules: String,
    /// By the names that the rules write. What cannot be read is left out.
    pub files: BTreeMap<String, String>,
}

/// Reads a rule file, and the files that its rules name, to send them elsewhere.
pub fn read_rule_texts(path: &Path) -> Result<RuleFileTexts> {
    let failed = |cause| AlertsError::Read { path: path.to_owned(), cause };
    let rules = std::fs::read_to_string(path).map_err(failed)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let files = RefCell::new(BTreeMap::new());
    let read = |named: &str| {
        let bytes = read_named(&dir.join(named))?;
        if let Ok(text) = String::from_utf8(bytes.clone()) {
            files.borrow_mut().insert(named.to_owned(), text);
        }
        Ok(bytes)
    };
    parse_rule_file_with(&path.to_string_lossy(), &rules, &rule_promql_options(), &read);
    Ok(RuleFileTexts { rules, files: files.into_inner() })
}

fn read_named(path: &Path) -> std::result::Result<Vec<u8>, String> {
    let found = read_file(&OsDisk, path, NAMED_BYTES_MAX.saturating_add(1));
    let bytes = found.map_err(|error| error.to_string())?.ok_or("the file is missing")?;
    match bytes.len() as u64 > NAMED_BYTES_MAX {
        true => Err(format!("size limit ({} MiB) of a file exceeded", NAMED_BYTES_MAX >> 20)),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::ops::Range;

    use hist::Histogram;

    use super::*;

    /// Lines of windows of a minute, with these values each.
    fn windows(minutes: Range<i64>, values: u32, unit: &decode::Unit) -> String {
        let mut lines = String::new();
        for minute in minutes {
            let mut histogram = Histogram::default();
            (0..values).for_each(|value| histogram.record(f64::from(value + 1)));
            let times = (minute * 60_000_000_000, (minute + 1) * 60_000_000_000);
            decode::frames::write_histogram(&mut lines, "", [], times, Some(unit), &histogram);
        }
        lines
    }

    #[test]
    fn the_baseline_of_a_rule_is_beside_its_file() {
        let dir = std::env::temp_dir().join(format!("topdeck-baseline-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let rules = "[[rule]]\nname = 'Shape'\nselect = 'latency'\n[[rule.criteria]]\n\
                     severity = 3\nshape_of = { file = 'day.frames' }\n";
        let path = dir.join("shop.toml");
        std::fs::write(&path, rules).expect("written");
        let (ms, s) = (decode::Unit::Milliseconds, decode::Unit::Seconds);
        let frame = windows(0..1, 250, &ms);
        let texts = [
            None,
            Some(windows(0..12, 250, &ms)),
            Some(String::new()),
            Some(windows(0..11, 250, &ms)),
            Some(windows(0..12, 199, &ms)),
            Some(windows(0..12, 250, &ms) + &windows(12..13, 250, &s)),
            Some(format!("{frame}{{\"metric\":\"x\",\"kind\":\"gauge\",\"number\":1}}\n")),
            Some(format!("{frame}not JSON\n")),
        ];
        let mut found = String::new();
        for text in texts {
            if let Some(text) = text {
                std::fs::write(dir.join("day.frames"), text).expect("written");
            }
            let file = read_rule_file(&path, "shop.toml").expect("readable");
            let usable = file.groups.iter().map(|group| group.rules.len()).sum::<usize>();
            _ = writeln!(found, "usable: {usable}");
            file.problems.iter().for_each(|problem| _ = writeln!(found, "{problem}"));
        }
        std::fs::write(dir.join("day.frames"), windows(0..12, 250, &ms)).expect("written");
        let texts = read_rule_texts(&path).expect("readable");
        std::fs::remove_file(dir.join("day.frames")).expect("removed");
        let without = read_rule_texts(&path).expect("readable");
        std::fs::remove_dir_all(&dir).expect("removed");
        let files = BTreeMap::from([("day.frames".to_owned(), windows(0..12, 250, &ms))]);
        assert_eq!(texts, RuleFileTexts { rules: rules.to_owned(), files });
        assert_eq!(without, RuleFileTexts { rules: rules.to_owned(), ..Default::default() });
        expect_test::expect![[r#"
            usable: 0
            shop.toml:6:12: error: shape_of: cannot use "day.frames": the file is missing; save it with topdeck query --frames
            usable: 1
            usable: 0
            shop.toml:6:12: error: shape_of: cannot use "day.frames": the file has no histograms; save it with topdeck query --frames
            usable: 0
            shop.toml:6:12: error: shape_of: cannot use "day.frames": found 11 windows of {} with at least 200 values, expected 12 or more; save it with topdeck query --frames
            usable: 0
            shop.toml:6:12: error: shape_of: cannot use "day.frames": found 0 windows of {} with at least 200 values, expected 12 or more; save it with topdeck query --frames
            usable: 0
            shop.toml:6:12: error: shape_of: cannot use "day.frames": histogram 13: found unit "s", expected "ms"; save it with topdeck query --frames
            usable: 0
            shop.toml:6:12: error: shape_of: cannot use "day.frames": sample 2 is no histogram; save it with topdeck query --frames
            usable: 0
            shop.toml:6:12: error: shape_of: cannot use "day.frames": line 2: found "not JSON", expected a JSON value; save it with topdeck query --frames
        "#]].assert_eq(&found);
    }
}
