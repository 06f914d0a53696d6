//! Windows that several rules of a cycle read: they are read once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::stream_reader::{SelectedStream, StreamWindow};
use super::{OwnCondition, RuleSource};
use crate::rule_file::Rule;

/// Text of the selector, length of the window, labels of the streams.
type WindowKey = (String, i64, Option<Vec<String>>);

/// Windows of the selectors that several rules have.
#[derive(Debug, Default)]
pub(crate) struct SharedWindows {
    windows: RefCell<HashMap<WindowKey, Option<Vec<Rc<StreamWindow>>>>>,
}

impl SharedWindows {
    /// Nothing is read yet.
    pub(crate) fn new<'a>(rules: impl Iterator<Item = &'a Rule>) -> SharedWindows {
        let mut readers: HashMap<WindowKey, usize> = HashMap::new();
        let own = rules.filter_map(|rule| Some((rule, rule.condition()?)));
        for key in own.filter_map(|(rule, own)| key(&rule.expression, own)) {
            *readers.entry(key).or_default() += 1;
        }
        let shared = readers.into_iter().filter(|(_, count)| *count > 1);
        SharedWindows { windows: RefCell::new(shared.map(|(key, _)| (key, None)).collect()) }
    }

    /// Windows of these streams, if another rule has read them. A stream that appeared in between
    /// makes them useless.
    pub(super) fn find(
        &self,
        expression: &str,
        condition: &OwnCondition,
        streams: &[SelectedStream],
    ) -> Option<Vec<Rc<StreamWindow>>> {
        let windows = self.windows.borrow();
        let found = windows.get(&key(expression, condition)?)?.as_ref()?;
        let labels = found.iter().map(|window| &window.labels);
        let is_same = labels.eq(streams.iter().map(|stream| &stream.labels));
        is_same.then(|| found.clone())
    }

    /// Keeps the windows of all streams, if another rule reads them, too.
    pub(super) fn keep(
        &self,
        expression: &str,
        condition: &OwnCondition,
        windows: &[Option<Rc<StreamWindow>>],
    ) {
        let Some(key) = key(expression, condition) else { return };
        if let Some(kept) = self.windows.borrow_mut().get_mut(&key) {
            *kept = windows.iter().cloned().collect();
        }
    }
}

fn key(expression: &str, condition: &OwnCondition) -> Option<WindowKey> {
    let is_selector = matches!(condition.source, RuleSource::Selector(_));
    is_selector.then(|| (expression.to_owned(), condition.window_ns, condition.by.clone()))
}
