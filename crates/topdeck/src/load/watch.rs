//! Who is told of a run each second: the view for people, and a server that it is pushed to.

use std::collections::BTreeMap;

use hist::Histogram;
use load::{Observer, Tally};

use crate::load::live::Live;
use crate::load::plan::Plan;
use crate::load::push::{Push, Pushed};

/// Hands on what it is told.
pub(crate) struct Watch {
    live: Option<Live>,
    push: Option<Push>,
    /// Service times by the second, counted from the start, in which answers came.
    services: BTreeMap<u64, Histogram>,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Watch {
    pub(crate) fn new(plan: &Plan, is_quiet: bool, push: Option<Push>) -> Watch {
        let live = (!is_quiet).then(|| Live::new(plan));
        Watch { live, push, services: BTreeMap::new() }
    }

    /// Service times by the second, and what became of what was pushed.
    pub(crate) fn finish(self) -> (BTreeMap<u64, Histogram>, Option<Pushed>) {
        (self.services, self.push.map(Push::finish))
    }
}

impl Observer for Watch {
    fn began(&mut self, _start_ns: u64, began_unix_ns: i64) {
        if let Some(push) = &mut self.push {
            push.began(began_unix_ns);
        }
    }

    fn second(&mut self, end_ns: u64, tally: &Tally) {
        // The last one ends a moment after the one before.
        if !end_ns.is_multiple_of(SECOND_NS) && tally.intended == 0 && tally.accounted() == 0 {
            return;
        }
        if let Some(live) = &mut self.live {
            live.second(end_ns, tally);
        }
        if let Some(push) = &mut self.push {
            push.second(end_ns, tally);
        }
        if tally.service.count() > 0 {
            // What ended at the end of a second was in it.
            let second = end_ns.saturating_sub(1) / SECOND_NS;
            let services = self.services.entry(second).or_default();
            services.merge(&tally.service).expect("BUG: recorders of one scheme");
        }
    }
}
