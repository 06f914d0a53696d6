//! Which streams of a rule fell silent: those of its selector, or the metrics that its query reads.

use std::sync::Arc;

use query::SeriesHandle;
use store::WindowRows;

use super::{AbsenceState, ObservedArrivals, OwnEvaluation, OwnInputs, StreamFindings};
use crate::evaluator::RuleQueryError;
use crate::own::absence::StreamArrivals;
use crate::own::rule_absence::{AbsentStream, absence_series};
use crate::own::stream_reader::{SelectedStream, query_error, streams_by_metric};

impl OwnEvaluation<'_> {
    /// Follows the rows of the metrics that a query reads. It cannot tell which of its streams need
    /// which series: a metric is silent when no series of it sends.
    pub(super) fn watch_metrics(
        &self,
        series: Vec<SeriesHandle>,
        clocks: &mut Arc<StreamArrivals>,
        findings: &mut StreamFindings,
    ) -> Result<(), RuleQueryError> {
        if self.condition.absence.is_none() {
            return Ok(());
        }
        let OwnInputs { time_ns, interval_ns, .. } = *self.inputs;
        let metrics = streams_by_metric(series);
        let clocks = Arc::make_mut(clocks);
        let mut walk = clocks.begin(time_ns, interval_ns, metrics.len());
        for metric in &metrics {
            let mut clock = walk.take(&metric.labels);
            metric.add_rows(self.source, &mut clock, time_ns).map_err(query_error)?;
            if clock.is_absent() && metric.is_retired(self.source, time_ns).map_err(query_error)? {
                clock.set_watched(false);
            }
            self.note_silence(metric, &mut clock, findings)?;
            walk.keep(&clock);
        }
        findings.absence.watched = metrics.len();
        findings.note_time_of_absence();
        Ok(())
    }

    /// Follows the rows of a stream, and notes whether they stopped. `rows` are those of the
    /// window, if they are known.
    pub(super) fn watch(
        &self,
        stream: &SelectedStream,
        rows: Option<&WindowRows>,
        clock: Option<&mut ObservedArrivals>,
        findings: &mut StreamFindings,
    ) -> Result<(), RuleQueryError> {
        let Some(clock) = clock.filter(|_| self.condition.absence.is_some()) else { return Ok(()) };
        let time_ns = self.inputs.time_ns;
        match rows {
            Some(rows) => rows.newest_end().into_iter().for_each(|end| clock.add(end, time_ns)),
            None => stream.add_rows(self.source, clock, time_ns).map_err(query_error)?,
        }
        self.note_silence(stream, clock, findings)
    }

    /// Notes whether the rows of a stream stopped, of which the newest one was added to its clock.
    fn note_silence(
        &self,
        stream: &SelectedStream,
        clock: &mut ObservedArrivals,
        findings: &mut StreamFindings,
    ) -> Result<(), RuleQueryError> {
        let Some(absence) = &self.condition.absence else { return Ok(()) };
        let time_ns = self.inputs.time_ns;
        if clock.is_first {
            self.begin_watch(stream, clock, absence.silence_ns())?;
        }
        let silence = |clock: &ObservedArrivals| {
            let silence = clock.silence_of_rule(absence.after_ns, time_ns);
            silence.map_or((AbsenceState::Present, 0), |it| (it.state, it.absent_after_ns))
        };
        if clock.is_watched() && silence(clock).0 == AbsenceState::Absent && !clock.is_absent() {
            // Rows may have been too late for the window.
            stream.add_rows(self.source, clock, time_ns).map_err(query_error)?;
            if silence(clock).0 == AbsenceState::Absent {
                match stream.is_retired(self.source, time_ns).map_err(query_error)? {
                    true => clock.set_watched(false),
                    false => clock.set_absent(),
                }
            }
        }
        if clock.is_watched() {
            match silence(clock) {
                (AbsenceState::Present, _) => {}
                (AbsenceState::Uncertain, _) => findings.absence.is_uncertain = true,
                (AbsenceState::Absent, absent_after_ns) => findings.absence.push(AbsentStream {
                    labels: stream.labels.clone(),
                    newest_row_ns: clock.newest_ns(),
                    absent_after_ns,
                }),
            }
        }
        Ok(())
    }

    /// Decides in the first evaluation whether the silence of a stream is an absence.
    fn begin_watch(
        &self,
        stream: &SelectedStream,
        clock: &mut ObservedArrivals,
        silence_ns: i64,
    ) -> Result<(), RuleQueryError> {
        let OwnInputs { time_ns, watched_from_ns, .. } = *self.inputs;
        if clock.newest_ns().is_none() && watched_from_ns < time_ns {
            let newest_ns = stream.last_end(self.source, time_ns).map_err(query_error)?;
            newest_ns.into_iter().for_each(|end_ns| clock.add(end_ns, time_ns));
        }
        let is_watched = |newest_ns: i64| newest_ns.saturating_add(silence_ns) >= watched_from_ns;
        clock.set_watched(clock.newest_ns().is_some_and(is_watched));
        Ok(())
    }
}

impl StreamFindings {
    /// Notes the time of an absence: whoever sees it later sees the same row.
    pub(super) fn note_time_of_absence(&mut self) {
        if !self.absence.streams.is_empty() {
            let row_ns = self.absence.oldest_row_ns;
            self.row_times.extend(row_ns.map(|row_ns| (absence_series(), row_ns)));
        }
    }
}
