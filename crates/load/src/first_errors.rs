//! Error details of the first failure of each kind, from the server, the OS or TLS.

use crate::failure::Failure;
use crate::secret::Secret;

/// Maximum length of a detail in a report.
const CHARACTERS_MAX: usize = 300;

/// Per failure kind: time and detail of the first failure that has one.
#[derive(Default)]
pub(crate) struct FirstErrors([Option<(u64, String)>; Failure::ALL.len()]);

impl FirstErrors {
    /// Stores the detail if it is the first of its kind.
    pub(crate) fn add(
        &mut self,
        failure: Failure,
        now_ns: u64,
        known: impl FnOnce() -> Option<String>,
    ) {
        let first = &mut self.0[failure as usize];
        if first.is_none() {
            *first = known().map(|errors| (now_ns, errors));
        }
    }

    /// Whether a detail of this kind is stored.
    pub(crate) fn has(&self, failure: Failure) -> bool {
        self.0[failure as usize].is_some()
    }

    /// Merges the errors of another worker; the earlier one wins.
    pub(crate) fn merge(&mut self, other: FirstErrors) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            if mine.as_ref().is_none_or(|mine| theirs.as_ref().is_some_and(|one| one.0 < mine.0)) {
                *mine = theirs.or(mine.take());
            }
        }
    }

    /// Returns the details by kind. Removes the password, which a server may repeat.
    pub(crate) fn finish(self, secret: Option<&Secret>) -> [Option<String>; Failure::ALL.len()] {
        let secret = secret.map(Secret::reveal).filter(|one| !one.is_empty());
        self.0.map(|first| {
            let (_, errors) = first?;
            let errors = secret.map_or_else(|| errors.clone(), |one| errors.replace(one, "***"));
            let end = errors.char_indices().nth(CHARACTERS_MAX);
            Some(end.map_or_else(|| errors.clone(), |(end, _)| format!("{}…", &errors[..end])))
        })
    }
}

/// Printable excerpt of unexpected bytes.
pub(crate) fn preview(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let more = if bytes.len() > SHOWN { " …" } else { "" };
    format!("received {:?}{more}", String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_error_of_each_kind_is_stored() {
        let mut errors = [FirstErrors::default(), FirstErrors::default()];
        let some = |text: &str| Some(text.to_owned());
        errors[0].add(Failure::Closed, 1, || None);
        errors[0].add(Failure::Closed, 5, || some("five"));
        errors[0].add(Failure::Closed, 6, || some("six"));
        errors[1].add(Failure::Closed, 4, || some("four"));
        errors[1].add(Failure::Tls, 9, || some("nine"));
        let [mut first, second] = errors;
        first.merge(second);
        first.merge(FirstErrors::default());
        let found = first.finish(None);
        assert_eq!(found[Failure::Closed as usize].as_deref(), Some("four"));
        assert_eq!(found[Failure::Tls as usize].as_deref(), Some("nine"));
        assert_eq!(found.iter().flatten().count(), 2);
    }

    #[test]
    fn passwords_are_removed_and_long_details_truncated() {
        let mut errors = FirstErrors::default();
        errors.add(Failure::Status, 1, || Some("no hunter2 here".to_owned()));
        errors.add(Failure::Reset, 1, || Some("ü".repeat(400)));
        let found = errors.finish(Some(&Secret::new("hunter2")));
        assert_eq!(found[Failure::Status as usize].as_deref(), Some("no *** here"));
        assert_eq!(found[Failure::Reset as usize].as_deref().unwrap().chars().count(), 301);
    }
}
