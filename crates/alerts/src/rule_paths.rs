//! Files that a pattern of `rule_files` names. As in Prometheus, `*` and `?` match within a
//! component of the path, and a pattern that matches nothing is no error.

use std::path::{Component, Path, PathBuf};

use model::selector::Pattern;

use crate::error::{AlertsError, Result};

/// Files that match a pattern of `rule_files`, in the order of their names.
pub fn find_rule_files(pattern: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str().to_string_lossy();
        let has_wildcard = matches!(component, Component::Normal(_)) && name.contains(['*', '?']);
        if !has_wildcard {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        let name = Pattern::Glob(name.into_owned());
        let mut matching = Vec::new();
        for dir in found {
            matching.extend(matching_entries(&dir, &name)?);
        }
        found = matching;
    }
    // A file without a wildcard that is missing is reported when it is read.
    let has_wildcard = pattern.to_string_lossy().contains(['*', '?']);
    found.retain(|path| !has_wildcard || path.is_file());
    Ok(found)
}

fn matching_entries(dir: &Path, name: &Pattern) -> Result<Vec<PathBuf>> {
    let at = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let failed = |cause| AlertsError::Read { path: at.to_owned(), cause };
    let mut matching = Vec::new();
    match std::fs::read_dir(at) {
        Ok(entries) => {
            for entry in entries {
                let file = entry.map_err(failed)?.file_name();
                if name.matches(&file.to_string_lossy()) {
                    matching.push(dir.join(file));
                }
            }
        }
        // `*` may have matched a file, or nothing is there yet.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) => {}
        Err(error) => return Err(failed(error)),
    }
    matching.sort_unstable();
    Ok(matching)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_within_a_component_of_the_path() {
        let name = format!("topdeck-rule-paths-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        for sub in ["a", "b"] {
            std::fs::create_dir_all(dir.join(sub)).expect("a directory");
            for file in ["x.yml", "y.yaml", "z.txt"] {
                std::fs::write(dir.join(sub).join(file), "").expect("a file");
            }
        }
        let check = |pattern: &str, expected: &[&str]| {
            let found = find_rule_files(&dir.join(pattern)).expect("readable");
            let expected: Vec<_> = expected.iter().map(|file| dir.join(file)).collect();
            assert_eq!(found, expected, "{pattern}");
        };
        check("a/*.yml", &["a/x.yml"]);
        check("*/?.y*ml", &["a/x.yml", "a/y.yaml", "b/x.yml", "b/y.yaml"]);
        check("a/none*", &[]);
        check("none/*.yml", &[]);
        check("*", &[]);
        // It is an error when it is read.
        check("a/none.yml", &["a/none.yml"]);
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
