//! Acknowledgements of an alert: somebody works on it.
//!
//! An alert has at most two: one that was made at this site, and one of the primary site, which a
//! standby takes over. Neither replaces the other, so the end of one does not end the other.

use std::fmt::Write as _;

use model::text_file::{escape_word, split_words, unescape_word};

/// Acknowledgement of an alert. It ends at its expiry, or when the alert resolves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlertAcknowledgement {
    /// Time.
    pub at_ns: i64,
    /// Expiry.
    pub until_ns: i64,
    /// Who acknowledged.
    pub by: String,
    /// Note.
    pub note: String,
    /// URL of the primary site, if it was made there; `None` if it was made here.
    pub origin: Option<String>,
}

impl AlertAcknowledgement {
    /// Longest time until the expiry: 31 days.
    pub const LENGTH_NS_MAX: i64 = 31 * 24 * 3600 * 1_000_000_000;
    /// Longest name of who acknowledged, in bytes.
    pub const BY_BYTES_MAX: usize = 256;
    /// Longest note in bytes.
    pub const NOTE_BYTES_MAX: usize = 4 << 10;

    /// Who acknowledged, and where, if that was not here: `ann at https://north:7717`.
    pub fn author(&self) -> String {
        match &self.origin {
            Some(url) => format!("{} at {url}", self.by),
            None => self.by.clone(),
        }
    }

    /// Whether another one only has another expiry.
    fn is_same(&self, other: &AlertAcknowledgement) -> bool {
        (&self.by, &self.note, &self.origin) == (&other.by, &other.note, &other.origin)
    }
}

/// What becomes of the acknowledgements of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcknowledgementChange {
    /// Somebody acknowledges the alert, here or at the primary site, or moves the expiry.
    Set(AlertAcknowledgement),
    /// Somebody takes all of them back, here.
    RemoveAll,
    /// The primary site no longer has one.
    RemoveOfPrimary,
}

/// Acknowledgements of an alert.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlertAcknowledgements {
    /// Without an origin.
    own: Option<AlertAcknowledgement>,
    /// With an origin.
    of_primary: Option<AlertAcknowledgement>,
    /// Time of the one of the primary site that ended because the alert became worse. The primary
    /// site lists it until it sees that, too.
    ended_of_primary_ns: Option<i64>,
}

impl AlertAcknowledgements {
    /// The one that is told: the one that was made here, else that of the primary site.
    pub fn current(&self) -> Option<&AlertAcknowledgement> {
        self.own.as_ref().or(self.of_primary.as_ref())
    }

    /// The one that was made here.
    pub fn own(&self) -> Option<&AlertAcknowledgement> {
        self.own.as_ref()
    }

    /// That of the primary site.
    pub fn of_primary(&self) -> Option<&AlertAcknowledgement> {
        self.of_primary.as_ref()
    }

    /// Earliest expiry.
    pub fn next_expiry_ns(&self) -> Option<i64> {
        self.own.iter().chain(&self.of_primary).map(|one| one.until_ns).min()
    }

    /// Makes a change. Returns whether it is a change of state: the same person with the same note
    /// only moves the expiry.
    pub fn apply(&mut self, change: &AcknowledgementChange) -> bool {
        let before = self.current().cloned();
        match change {
            AcknowledgementChange::Set(new) => self.set(new.clone()),
            AcknowledgementChange::RemoveAll => *self = AlertAcknowledgements::default(),
            AcknowledgementChange::RemoveOfPrimary => self.of_primary = None,
        }
        self.is_another_state(before.as_ref())
    }

    /// Ends all because the alert became worse.
    pub fn end(&mut self) {
        let ended_ns = self.of_primary.take().map(|one| one.at_ns).max(self.ended_of_primary_ns);
        *self = AlertAcknowledgements { ended_of_primary_ns: ended_ns, ..Default::default() };
    }

    /// Whether one that was made at the primary site at a time ended because the alert became
    /// worse, rather than by a decision of somebody.
    pub fn has_ended(&self, at_ns: i64) -> bool {
        self.ended_of_primary_ns.is_some_and(|ended_ns| at_ns <= ended_ns)
    }

    /// Removes those that have expired. Returns whether that is a change of state.
    pub fn expire(&mut self, time_ns: i64) -> bool {
        let before = self.current().cloned();
        for slot in [&mut self.own, &mut self.of_primary] {
            slot.take_if(|one| one.until_ns <= time_ns);
        }
        self.is_another_state(before.as_ref())
    }

    fn set(&mut self, mut new: AlertAcknowledgement) {
        let slot = match new.origin {
            None => &mut self.own,
            Some(_) => &mut self.of_primary,
        };
        if let Some(before) = slot.as_ref().filter(|before| before.is_same(&new)) {
            new.at_ns = before.at_ns;
        }
        *slot = Some(new);
    }

    fn is_another_state(&self, before: Option<&AlertAcknowledgement>) -> bool {
        match (before, self.current()) {
            (None, None) => false,
            (Some(before), Some(now)) => !before.is_same(now),
            _ => true,
        }
    }

    /// Appends the lines of a stored alert, `acknowledged …`, `mirrored …` and `mirrored_ended …`
    /// (`docs/formats/alert-states.md`).
    pub fn write_lines(&self, text: &mut String) {
        for one in self.own.iter().chain(&self.of_primary) {
            let AlertAcknowledgement { at_ns, until_ns, by, note, origin } = one;
            let words = format!("{at_ns} {until_ns} {} {}", escape_word(by), escape_word(note));
            // Writing to a string does not fail.
            _ = match origin {
                None => writeln!(text, "acknowledged {words}"),
                Some(url) => writeln!(text, "mirrored {words} {}", escape_word(url)),
            };
        }
        if let Some(ended_ns) = self.ended_of_primary_ns {
            _ = writeln!(text, "mirrored_ended {ended_ns}");
        }
    }

    /// Reads such a line from its keyword and its other words; `None` if it is invalid.
    pub fn read_line(&mut self, keyword: &str, words: &str) -> Option<()> {
        let time = |word: &str| word.parse::<i64>().ok().filter(|_| !word.starts_with('+'));
        let (at_ns, until_ns, by, note, origin) = match keyword {
            "acknowledged" => {
                let [at_ns, until_ns, by, note] = split_words(words)?;
                (at_ns, until_ns, by, note, None)
            }
            "mirrored" => {
                let [at_ns, until_ns, by, note, url] = split_words(words)?;
                (at_ns, until_ns, by, note, Some(unescape_word(url)?))
            }
            "mirrored_ended" => {
                self.ended_of_primary_ns = Some(time(words)?);
                return Some(());
            }
            _ => return None,
        };
        self.set(AlertAcknowledgement {
            at_ns: time(at_ns)?,
            until_ns: time(until_ns)?,
            by: unescape_word(by)?,
            note: unescape_word(note)?,
            origin,
        });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(name: &str, until_ns: i64) -> AcknowledgementChange {
        AcknowledgementChange::Set(AlertAcknowledgement {
            at_ns: until_ns - 10,
            until_ns,
            by: name.to_owned(),
            note: String::new(),
            origin: (name == "ann").then(|| "http://north".to_owned()),
        })
    }

    /// Makes a change: whether it is one of state, and who has acknowledged the alert then.
    #[track_caller]
    fn check(
        of: &mut AlertAcknowledgements,
        change: AcknowledgementChange,
        expected: (bool, Option<&str>),
    ) {
        let is_another_state = of.apply(&change);
        let author = of.current().map(AlertAcknowledgement::author);
        assert_eq!((is_another_state, author.as_deref()), expected);
    }

    const ANN: Option<&str> = Some("ann at http://north");

    /// Bob acknowledges here, ann at the primary site, for longer. Ann takes hers back.
    #[test]
    fn the_primary_site_removes_only_its_own() {
        let mut of = AlertAcknowledgements::default();
        check(&mut of, by("bob", 100), (true, Some("bob")));
        check(&mut of, by("ann", 200), (false, Some("bob")));
        check(&mut of, AcknowledgementChange::RemoveOfPrimary, (false, Some("bob")));
        check(&mut of, AcknowledgementChange::RemoveOfPrimary, (false, Some("bob")));
        check(&mut of, by("ann", 200), (false, Some("bob")));
        check(&mut of, AcknowledgementChange::RemoveAll, (true, None));
        check(&mut of, AcknowledgementChange::RemoveAll, (false, None));
    }

    #[test]
    fn an_alert_is_acknowledged_while_one_holds() {
        let mut of = AlertAcknowledgements::default();
        check(&mut of, by("ann", 200), (true, ANN));
        check(&mut of, by("bob", 100), (true, Some("bob")));
        assert_eq!(of.next_expiry_ns(), Some(100));
        assert!(!of.expire(99));
        assert!(of.expire(100));
        assert_eq!(of.current().map(AlertAcknowledgement::author).as_deref(), ANN);
        assert_eq!(of.next_expiry_ns(), Some(200));
        assert!(of.expire(200));
        assert_eq!(of, AlertAcknowledgements::default());
    }

    #[test]
    fn what_ended_because_the_alert_is_worse_is_known_to_have_ended() {
        let mut of = AlertAcknowledgements::default();
        check(&mut of, by("bob", 100), (true, Some("bob")));
        check(&mut of, by("ann", 200), (false, Some("bob")));
        assert!(!of.has_ended(190));
        of.end();
        of.end();
        assert_eq!((of.current(), of.next_expiry_ns()), (None, None));
        assert_eq!([189, 190, 191].map(|at_ns| of.has_ended(at_ns)), [true, true, false]);
        // A later one is another one.
        check(&mut of, by("ann", 300), (true, ANN));
        assert!(!of.has_ended(290));
    }

    #[test]
    fn the_same_person_only_moves_the_expiry() {
        let mut of = AlertAcknowledgements::default();
        check(&mut of, by("bob", 100), (true, Some("bob")));
        check(&mut of, by("bob", 300), (false, Some("bob")));
        let found = of.own().map(|one| (one.at_ns, one.until_ns));
        assert_eq!(found, Some((90, 300)));
        check(&mut of, by("eve", 300), (true, Some("eve")));
    }

    #[test]
    fn lines_are_read_as_written() {
        let mut of = AlertAcknowledgements::default();
        of.apply(&by("ann", 150));
        of.end();
        of.apply(&by("bob", 100));
        of.apply(&by("ann", 200));
        let mut text = String::new();
        of.write_lines(&mut text);
        let expected = "acknowledged 90 100 bob \nmirrored 190 200 ann  http://north\n\
                        mirrored_ended 140\n";
        assert_eq!(text, expected);
        let mut read = AlertAcknowledgements::default();
        for line in text.lines() {
            let (keyword, words) = line.split_once(' ').expect("words");
            assert_eq!(read.read_line(keyword, words), Some(()));
        }
        assert_eq!(read, of);
        assert!(read.has_ended(140));
        for (keyword, words) in [
            ("acknowledged", "90 100 bob"),
            ("acknowledged", "90 100 bob n http://north"),
            ("mirrored", "90 100 bob n"),
            ("mirrored", "+90 100 bob n http://north"),
            ("mirrored", "90 x bob n http://north"),
            ("mirrored_ended", "+90"),
            ("mirrored_ended", "90 100"),
            ("mirrored_ended", ""),
            ("confirmed", "90 100 bob n"),
        ] {
            assert_eq!(read.read_line(keyword, words), None, "{keyword} {words}");
        }
    }
}
