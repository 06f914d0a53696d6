//! Statements of a service whose operations end at a time-out: proposed as waits.

use std::collections::HashMap;
use std::sync::Arc;

use wire::{ProposedWait, ServiceInterval, TimeoutSpikes};

use crate::operation_series::{STATEMENT_BYTES_MAX, WORD_BYTES_MAX, truncate};

/// Statements of a service whose long operations are counted.
const STATEMENTS_MAX: usize = 16;

/// Verb and statement.
type WaitName = (Arc<str>, Arc<str>);

/// Long operations of a service since the start of the capture, by statement.
#[derive(Default)]
pub(crate) struct WaitProposals(HashMap<WaitName, TimeoutSpikes>);

impl WaitProposals {
    /// Adds an interval. A new statement takes the place of one without a proposal.
    pub(crate) fn add(&mut self, interval: &ServiceInterval) {
        for statement in &interval.statements {
            if !statement.timeouts.has_long_operations() {
                continue;
            }
            let verb = truncate(&statement.verb, WORD_BYTES_MAX);
            let text = truncate(&statement.statement, STATEMENT_BYTES_MAX);
            let name = (verb.into(), text.into());
            if !self.0.contains_key(&name) && self.0.len() >= STATEMENTS_MAX {
                let free = self.0.iter().find(|(_, spikes)| spikes.proposal().is_none());
                let Some(free) = free.map(|(name, _)| name.clone()) else { continue };
                self.0.remove(&free);
            }
            self.0.entry(name).or_default().merge(&statement.timeouts);
        }
    }

    /// All proposals, by verb and statement.
    pub(crate) fn proposals(&self) -> Vec<(&WaitName, ProposedWait)> {
        let proposal = |(name, spikes)| Some((name, TimeoutSpikes::proposal(spikes)?));
        let mut proposals: Vec<_> = self.0.iter().filter_map(proposal).collect();
        model::sort::by_key(&mut proposals, |(name, _)| *name);
        proposals
    }
}
