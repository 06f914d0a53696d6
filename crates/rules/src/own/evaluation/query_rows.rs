//! Times of the newest rows of the streams of a query, which are part of the keys of its alerts: a
//! query is evaluated when rows arrive, which is another time at each site.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use query::{LabelSet, SeriesHandle};

use super::{OwnEvaluation, StreamFindings};
use crate::alert_series::is_alert_series;
use crate::own::absence::FIRST_ROW_AGE_MAX_NS;

impl OwnEvaluation<'_> {
    /// Time of the newest row of each stream that has an active alert, or an element: that of the
    /// series that were read and have the labels of the stream; of all, if none has them. Those of
    /// alerts are left out, which are other ones at each site.
    pub(super) fn row_times_of_query(
        &self,
        findings: &StreamFindings,
        series: &[SeriesHandle],
    ) -> BTreeMap<LabelSet, i64> {
        let elements = findings.elements.iter().map(|element| &element.labels);
        let streams: BTreeSet<&LabelSet> = elements.chain(self.inputs.watched).collect();
        if streams.is_empty() {
            return BTreeMap::new();
        }
        let is_of_alert = |handle: &SeriesHandle| is_alert_series(handle.labels.name().as_bytes());
        let series: Vec<&SeriesHandle> =
            series.iter().filter(|handle| !is_of_alert(handle)).collect();
        // Usually all streams have the same names of labels.
        let mut by_names: HashMap<Vec<&str>, HashMap<LabelSet, Vec<SeriesHandle>>> = HashMap::new();
        let mut newest_of_all = None;
        let mut times = BTreeMap::new();
        for stream in streams {
            let names: Vec<&str> = stream.iter().map(|(name, _)| name).collect();
            let of_names = by_names.entry(names.clone()).or_insert_with(|| {
                let mut projected: HashMap<LabelSet, Vec<SeriesHandle>> = HashMap::new();
                for handle in &series {
                    let labels = handle.labels.filter(|name| names.contains(&name));
                    projected.entry(labels).or_default().push((*handle).clone());
                }
                projected
            });
            let newest = match of_names.get(stream) {
                Some(handles) => self.newest_row(handles),
                None => *newest_of_all.get_or_insert_with(|| {
                    let all: Vec<SeriesHandle> = series.iter().copied().cloned().collect();
                    self.newest_row(&all)
                }),
            };
            times.extend(newest.map(|row_ns| (stream.clone(), row_ns)));
        }
        times
    }

    /// Time of the newest row, unless it is old. A row whose time cannot be read has none.
    fn newest_row(&self, series: &[SeriesHandle]) -> Option<i64> {
        let time_ns = self.inputs.time_ns;
        // Of a shorter range, a source need not look for rows.
        let range = time_ns.saturating_sub(FIRST_ROW_AGE_MAX_NS + 1)..time_ns;
        let found = self.source.time_range(series, range).ok().flatten()?;
        self.row_time(found.end)
    }
}
