//! Exemplars at the intake: which are accepted, and which of their attributes are kept.
//!
//! Attributes may be personal, so they are removed or replaced by hashes before anything is
//! written. A hash is 64 bits of BLAKE3 over the journal's random id, the name and the value, as 16
//! hexadecimal digits: equal values of a node have equal hashes.

use std::borrow::Cow;

use decode::ExemplarProblem;
use decode::spans::trace::AttributeAction;
use model::{Batch, EXEMPLAR_ATTRIBUTES_MAX, Exemplar, ExemplarAttributes, blake3_128};

use crate::meter::{EventCounter, Meter};

/// Which attributes of exemplars are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExemplarPolicy {
    /// Whether exemplars are accepted; default: `true`.
    pub is_enabled: bool,
    /// Names of the attributes that are kept; all by default.
    pub attributes: Option<Vec<String>>,
    /// Names of attributes of which only a hash is kept.
    pub hashed_attributes: Vec<String>,
}

impl Default for ExemplarPolicy {
    fn default() -> ExemplarPolicy {
        ExemplarPolicy { is_enabled: true, attributes: None, hashed_attributes: Vec::new() }
    }
}

/// Why the intake rejects an exemplar that a decoder accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExemplarRejection {
    /// Exemplars are disabled.
    Disabled,
    /// The batch has its maximum of exemplars.
    BatchFull,
    /// The series is invalid.
    InvalidSeries,
    /// The manifest of the store does not say yet that the journal has exemplars.
    NotAnnounced,
}

/// Policy and counters.
#[derive(Debug)]
pub(crate) struct ExemplarIntake {
    policy: ExemplarPolicy,
    /// Distinguishes the hashes of this node.
    salt: [u8; 16],
    accepted: EventCounter,
    truncated: EventCounter,
    rejected: Vec<(&'static str, EventCounter)>,
}

impl ExemplarRejection {
    const ALL: [ExemplarRejection; 4] = [
        ExemplarRejection::Disabled,
        ExemplarRejection::BatchFull,
        ExemplarRejection::InvalidSeries,
        ExemplarRejection::NotAnnounced,
    ];

    fn name(self) -> &'static str {
        match self {
            ExemplarRejection::Disabled => "disabled",
            ExemplarRejection::BatchFull => "batch_full",
            ExemplarRejection::InvalidSeries => "invalid_series",
            ExemplarRejection::NotAnnounced => "not_announced",
        }
    }
}

impl ExemplarIntake {
    pub(crate) fn new(policy: ExemplarPolicy, journal: u128, meter: &Meter) -> ExemplarIntake {
        let about = "Exemplars rejected, by reason; their samples are stored";
        let problems = ExemplarProblem::ALL.into_iter();
        let problems = problems.filter(|problem| *problem != ExemplarProblem::Truncated);
        let reasons = problems.map(ExemplarProblem::name);
        let rejected = reasons
            .chain(ExemplarRejection::ALL.map(ExemplarRejection::name))
            .map(|reason| {
                let labels = [("reason", reason)];
                (reason, meter.counter("topdeck_exemplars_rejected_total", about, &labels))
            })
            .collect();
        let counter = |name, about| meter.counter(name, about, &[]);
        ExemplarIntake {
            policy,
            salt: journal.to_le_bytes(),
            accepted: counter(
                "topdeck_exemplars_accepted_total",
                "Exemplars written to the journal",
            ),
            truncated: counter(
                "topdeck_exemplars_truncated_total",
                "Exemplars with attributes cut off or left out because of their size or number",
            ),
            rejected,
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.policy.is_enabled
    }

    /// A batch without its exemplars and traces if exemplars are disabled, and their number.
    pub(crate) fn without_disabled(&self, batch: &Batch) -> model::Result<(Option<Batch>, u64)> {
        match batch.has_sections() && !self.is_enabled() {
            true => Ok((Some(batch.without_sections()?), batch.exemplars())),
            false => Ok((None, 0)),
        }
    }

    /// Counts the exemplars of a batch that was appended, perhaps without them.
    pub(crate) fn count_appended(&self, exemplars: u64, is_dropped: bool) {
        match is_dropped {
            true => self.count_rejected(ExemplarRejection::NotAnnounced, exemplars),
            false if exemplars > 0 => self.accepted.add(exemplars),
            false => {}
        }
    }

    pub(crate) fn count_problem(&self, problem: ExemplarProblem) {
        match problem {
            ExemplarProblem::Truncated => self.truncated.add(1),
            problem => self.count_reason(problem.name(), 1),
        }
    }

    pub(crate) fn count_rejected(&self, rejection: ExemplarRejection, exemplars: u64) {
        self.count_reason(rejection.name(), exemplars);
    }

    fn count_reason(&self, reason: &str, exemplars: u64) {
        let counter = self.rejected.iter().find(|(known, _)| *known == reason);
        if let Some((_, counter)) = counter.filter(|_| exemplars > 0) {
            counter.add(exemplars);
        }
    }

    /// The exemplar as it is stored, and whether attributes that would be kept exceed their number.
    pub(crate) fn redact<'a>(&self, exemplar: &'a Exemplar) -> (Cow<'a, Exemplar>, bool) {
        let ExemplarPolicy { attributes: allowed, hashed_attributes: hashed, .. } = &self.policy;
        let is_plain = allowed.is_none() && hashed.is_empty();
        let is_bounded = || exemplar.attributes.len() <= EXEMPLAR_ATTRIBUTES_MAX;
        if exemplar.attributes.is_empty() || is_plain && is_bounded() {
            return (Cow::Borrowed(exemplar), false);
        }
        let kept = exemplar.attributes.iter().filter_map(|(name, value)| {
            match self.attribute_action(name, &|| value.to_owned()) {
                AttributeAction::Keep => Some((name, Cow::Borrowed(value))),
                AttributeAction::Replace(hash) => Some((name, Cow::Owned(hash))),
                AttributeAction::Remove => None,
            }
        });
        let kept: Vec<(&str, Cow<'_, str>)> = kept.collect();
        let pairs = kept.iter().map(|(name, value)| (*name, &**value));
        let (attributes, is_cut) = ExemplarAttributes::new(pairs);
        (Cow::Owned(Exemplar { attributes, ..exemplar.clone() }), is_cut)
    }

    /// What happens to an attribute. To hash one is to keep it.
    pub(crate) fn attribute_action(
        &self,
        name: &str,
        value: &dyn Fn() -> String,
    ) -> AttributeAction {
        let is_in = |names: &[String]| names.iter().any(|known| known == name);
        if is_in(&self.policy.hashed_attributes) {
            return AttributeAction::Replace(self.hash(name, &value()));
        }
        match self.policy.attributes.as_ref().is_none_or(|allowed| is_in(allowed)) {
            true => AttributeAction::Keep,
            false => AttributeAction::Remove,
        }
    }

    /// What happens to an attribute of a span of a kept trace: those that are labels of its series
    /// stay.
    pub(crate) fn span_action(&self, name: &str, value: &dyn Fn() -> String) -> AttributeAction {
        match name {
            "service.name" | "service.namespace" => AttributeAction::Keep,
            name => self.attribute_action(name, value),
        }
    }

    fn hash(&self, name: &str, value: &str) -> String {
        let hash = blake3_128(&[&self.salt, name.as_bytes(), &[0], value.as_bytes()].concat());
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::ExemplarSource;

    use super::*;

    fn redacted(policy: ExemplarPolicy, journal: u128) -> Vec<(String, String)> {
        let pairs = [("plan", "gold"), ("route", "/pay"), ("user", "u1")];
        let exemplar = Exemplar {
            time: 1,
            value: 2.0,
            trace_id: [3; 16],
            span_id: [4; 8],
            attributes: ExemplarAttributes::new(pairs).0,
            source: ExemplarSource::Otlp,
        };
        let intake = ExemplarIntake::new(policy, journal, &Meter::default());
        let (found, is_cut) = intake.redact(&exemplar);
        assert!(!is_cut);
        assert_eq!((found.value, found.trace_id), (2.0, [3; 16]));
        let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        found.attributes.iter().map(text).collect()
    }

    /// The limit of the number applies to what is kept.
    #[test]
    fn allowed_attribute_after_many_others_is_kept() {
        let names: Vec<String> = (0..20).map(|at| format!("a{at:02}")).collect();
        let pairs = names.iter().map(|name| (name.as_str(), "v"));
        let exemplar = Exemplar {
            time: 1,
            value: 2.0,
            trace_id: [0; 16],
            span_id: [0; 8],
            attributes: ExemplarAttributes::received(pairs).0,
            source: ExemplarSource::Otlp,
        };
        let check = |attributes: Option<Vec<String>>, expected: (&str, usize), is_cut: bool| {
            let policy = ExemplarPolicy { attributes, ..ExemplarPolicy::default() };
            let intake = ExemplarIntake::new(policy, 1, &Meter::default());
            let (found, cut) = intake.redact(&exemplar);
            let kept: Vec<&str> = found.attributes.iter().map(|(name, _)| name).collect();
            assert_eq!((kept[0], kept.len(), cut), (expected.0, expected.1, is_cut));
        };
        check(Some(vec!["a19".to_owned()]), ("a19", 1), false);
        check(None, ("a00", 8), true);
    }

    #[test]
    fn attributes_are_removed_or_hashed() {
        let names = |found: &[(String, String)]| {
            found.iter().map(|(name, _)| name.clone()).collect::<Vec<String>>()
        };
        let all = redacted(ExemplarPolicy::default(), 1);
        assert_eq!(names(&all), ["plan", "route", "user"]);
        let allowed = Some(vec!["route".to_owned(), "absent".to_owned()]);
        let policy = ExemplarPolicy { attributes: allowed, ..ExemplarPolicy::default() };
        assert_eq!(redacted(policy.clone(), 1), [("route".to_owned(), "/pay".to_owned())]);
        let policy = ExemplarPolicy { hashed_attributes: vec!["user".to_owned()], ..policy };
        let found = redacted(policy.clone(), 1);
        assert_eq!(names(&found), ["route", "user"]);
        let hash = &found[1].1;
        assert!(hash.len() == 16 && !hash.contains("u1"), "{hash}");
        assert_eq!(redacted(policy.clone(), 1), found, "the hash of a node is stable");
        assert_ne!(redacted(policy, 2)[1].1, *hash, "another node has other hashes");
        let none = ExemplarPolicy { attributes: Some(Vec::new()), ..ExemplarPolicy::default() };
        assert_eq!(redacted(none, 1), []);
    }
}
