//! Descriptions of metrics, as their senders report them: HELP of Prometheus, descriptions of OTLP.
//!
//! They are in memory: a sender repeats them with each scrape or export.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum number of metrics. Descriptions of further metrics are left out.
const METRICS_MAX: usize = 100_000;
/// Maximum length of a description in bytes; longer ones are cut.
const TEXT_BYTES_MAX: usize = 1024;
/// Suffixes of the series of a metric family, whose description has the name without it.
const SUFFIXES: [&str; 4] = ["_total", "_sum", "_count", "_info"];

/// Description of each metric.
#[derive(Debug, Default)]
pub(crate) struct MetricDescriptions(RwLock<HashMap<String, Arc<str>>>);

impl MetricDescriptions {
    /// Sets a description.
    pub(crate) fn set(&self, metric: &str, text: &str) {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        let text = &text[..end];
        let is_known = {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            known.get(metric).is_some_and(|known| **known == *text)
        };
        if is_known {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < METRICS_MAX || known.contains_key(metric) {
            known.insert(metric.to_owned(), text.into());
        }
    }

    /// Description of a metric, or of the family that it belongs to.
    pub(crate) fn get(&self, metric: &str) -> Option<Arc<str>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let family = || SUFFIXES.iter().find_map(|suffix| metric.strip_suffix(suffix));
        known.get(metric).or_else(|| known.get(family()?)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_family_have_its_description() {
        let descriptions = MetricDescriptions::default();
        descriptions.set("http_requests", "Requests.");
        descriptions.set("http_requests", "Requests served.");
        descriptions.set("long", &"ä".repeat(TEXT_BYTES_MAX));
        let get = |metric| descriptions.get(metric).map(|text| text.to_string());
        assert_eq!(get("http_requests_total").as_deref(), Some("Requests served."));
        assert_eq!(get("http_requests").as_deref(), Some("Requests served."));
        assert_eq!(get("http"), None);
        assert_eq!(get("long").unwrap().len(), TEXT_BYTES_MAX);
    }
}
