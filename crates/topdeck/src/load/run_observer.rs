//! Distributes the progress of a run: to the live view and to a server.

use std::collections::BTreeMap;

use hist::Histogram;
use load::{Observer, Tally};

use load::report::live_view::LiveView;
use load::report::push_sink::PushSink;
use load::report::run_plan::RunPlan;

/// Observer of a run.
pub(crate) struct RunObserver {
    live: Option<LiveView>,
    push: Option<PushSink>,
    /// Service times by the second of the response, from the start.
    services: BTreeMap<u64, Histogram>,
}

const SECOND_NS: u64 = 1_000_000_000;

impl RunObserver {
    pub(crate) fn new(plan: &RunPlan, is_quiet: bool, push: Option<PushSink>) -> RunObserver {
        let live = (!is_quiet).then(|| LiveView::new(plan));
        RunObserver { live, push, services: BTreeMap::new() }
    }

    /// Service times by second, and the push, which ends with the validity of the run.
    pub(crate) fn into_parts(self) -> (BTreeMap<u64, Histogram>, Option<PushSink>) {
        (self.services, self.push)
    }
}

impl Observer for RunObserver {
    fn run_started(&mut self, _start_ns: u64, start_unix_ns: i64) {
        if let Some(push) = &mut self.push {
            push.run_started(start_unix_ns);
        }
    }

    fn second_ended(&mut self, end_ns: u64, tally: &Tally) {
        // The run ends a moment after its last whole second.
        if !end_ns.is_multiple_of(SECOND_NS) && tally.scheduled == 0 && tally.accounted() == 0 {
            return;
        }
        if let Some(live) = &mut self.live {
            live.second_ended(end_ns, tally);
        }
        if let Some(push) = &mut self.push {
            push.second_ended(end_ns, tally);
        }
        if tally.service.count() > 0 {
            // A response at the end of a second belongs to it.
            let second = end_ns.saturating_sub(1) / SECOND_NS;
            let services = self.services.entry(second).or_default();
            services.merge(&tally.service).expect("BUG: recorders of one scheme");
        }
    }
}
