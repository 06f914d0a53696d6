//! Windows that several rules of an iteration read: they are read once.

use std::cell::RefCell;
use std::collections::HashMap;

use query::LabelSet;

use super::stream_reader::ReadWindow;
use super::{OwnCondition, RuleSource};
use crate::rule_file::Rule;

/// Text of the selector, length of the window, labels of the streams.
type WindowKey = (String, i64, Option<Vec<String>>);
/// The same, of a rule.
type BorrowedKey<'a> = (&'a str, i64, Option<&'a [String]>);

/// Windows of the streams of one selector.
#[derive(Debug, Default)]
pub(super) struct SelectorWindows(RefCell<HashMap<LabelSet, ReadWindow>>);

/// Windows of the selectors that several rules have.
#[derive(Debug, Default)]
pub(crate) struct SharedWindows {
    selectors: HashMap<WindowKey, SelectorWindows>,
}

impl SharedWindows {
    /// Nothing is read yet.
    pub(crate) fn new<'a>(rules: impl Iterator<Item = &'a Rule>) -> SharedWindows {
        // Of thousands of rules in each iteration: nothing is copied of those that share nothing.
        let mut readers: HashMap<BorrowedKey<'a>, usize> = HashMap::new();
        let own = rules.filter_map(|rule| Some((rule, rule.condition()?)));
        for key in own.filter_map(|(rule, own)| key(&rule.expression, own)) {
            *readers.entry(key).or_default() += 1;
        }
        let shared = readers.into_iter().filter(|(_, count)| *count > 1);
        let selectors = shared.map(|(key, _)| (owned(key), SelectorWindows::default()));
        SharedWindows { selectors: selectors.collect() }
    }

    /// Windows of the streams of a rule, if another rule reads them, too.
    pub(super) fn of_rule(
        &self,
        expression: &str,
        condition: &OwnCondition,
    ) -> Option<&SelectorWindows> {
        if self.selectors.is_empty() {
            return None;
        }
        self.selectors.get(&owned(key(expression, condition)?))
    }
}

impl SelectorWindows {
    /// Window of a stream, if another rule has read it.
    pub(super) fn find(&self, labels: &LabelSet) -> Option<ReadWindow> {
        self.0.borrow().get(labels).cloned()
    }

    /// Keeps the window of a stream.
    pub(super) fn keep(&self, window: &ReadWindow) {
        self.0.borrow_mut().insert(window.window.labels.clone(), window.clone());
    }
}

fn key<'a>(expression: &'a str, condition: &'a OwnCondition) -> Option<BorrowedKey<'a>> {
    let is_selector = matches!(condition.source, RuleSource::Selector(_));
    is_selector.then_some((expression, condition.window_ns, condition.by.as_deref()))
}

fn owned((expression, window_ns, by): BorrowedKey<'_>) -> WindowKey {
    (expression.to_owned(), window_ns, by.map(<[String]>::to_vec))
}
