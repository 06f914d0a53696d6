//! Words: what is known of failures beside their kind, as the server, the system or TLS said it.

use crate::failure::Failure;
use crate::secret::Secret;

/// Longer ones are cut: one is for a line of a report.
const CHARACTERS_MAX: usize = 300;

/// Of each kind of failure the first of which anything is known: when it was, and what is known.
#[derive(Default)]
pub(crate) struct Words([Option<(u64, String)>; Failure::ALL.len()]);

impl Words {
    /// Keeps what is known of a failure, if it is the first of its kind.
    pub(crate) fn add(
        &mut self,
        failure: Failure,
        now_ns: u64,
        known: impl FnOnce() -> Option<String>,
    ) {
        let first = &mut self.0[failure as usize];
        if first.is_none() {
            *first = known().map(|words| (now_ns, words));
        }
    }

    /// Takes in those of another worker.
    pub(crate) fn merge(&mut self, other: Words) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            if mine.as_ref().is_none_or(|mine| theirs.as_ref().is_some_and(|one| one.0 < mine.0)) {
                *mine = theirs.or(mine.take());
            }
        }
    }

    /// By the kind. A server may repeat what it was told: a password is taken out.
    pub(crate) fn finish(self, secret: Option<&Secret>) -> [Option<String>; Failure::ALL.len()] {
        let secret = secret.map(Secret::reveal).filter(|one| !one.is_empty());
        self.0.map(|first| {
            let (_, words) = first?;
            let words = secret.map_or_else(|| words.clone(), |one| words.replace(one, "***"));
            let end = words.char_indices().nth(CHARACTERS_MAX);
            Some(end.map_or_else(|| words.clone(), |(end, _)| format!("{}…", &words[..end])))
        })
    }
}

/// What came, where it is not of the protocol.
pub(crate) fn came(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let more = if bytes.len() > SHOWN { " …" } else { "" };
    format!("what came was {:?}{more}", String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_kind_is_kept() {
        let mut words = [Words::default(), Words::default()];
        let some = |text: &str| Some(text.to_owned());
        words[0].add(Failure::Closed, 1, || None);
        words[0].add(Failure::Closed, 5, || some("five"));
        words[0].add(Failure::Closed, 6, || some("six"));
        words[1].add(Failure::Closed, 4, || some("four"));
        words[1].add(Failure::Tls, 9, || some("nine"));
        let [mut first, second] = words;
        first.merge(second);
        first.merge(Words::default());
        let found = first.finish(None);
        assert_eq!(found[Failure::Closed as usize].as_deref(), Some("four"));
        assert_eq!(found[Failure::Tls as usize].as_deref(), Some("nine"));
        assert_eq!(found.iter().flatten().count(), 2);
    }

    #[test]
    fn a_password_is_taken_out_and_what_is_long_is_cut() {
        let mut words = Words::default();
        words.add(Failure::Status, 1, || Some("no hunter2 here".to_owned()));
        words.add(Failure::Reset, 1, || Some("ü".repeat(400)));
        let found = words.finish(Some(&Secret::new("hunter2")));
        assert_eq!(found[Failure::Status as usize].as_deref(), Some("no *** here"));
        assert_eq!(found[Failure::Reset as usize].as_deref().unwrap().chars().count(), 301);
    }
}
