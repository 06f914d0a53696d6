//! Scrape body: decompression and parsing by content type.

use std::io::Read as _;
use std::ops::ControlFlow;

use bytes::Bytes;
use decode::mapper::RowMapper;
use decode::{
    DecodedExemplar, DecodedSample, InputError, SampleSink, SampleTemporality, SeriesSink,
    exposition, prometheus_protobuf,
};
use http::{Response, header};

/// Decompressed scrape body.
#[derive(Debug)]
pub(crate) struct ScrapeBody {
    is_protobuf: bool,
    bytes: Bytes,
}

impl ScrapeBody {
    /// Decompresses the response. An unknown content type is parsed as text.
    pub(crate) fn decompress(
        response: &Response<Bytes>,
        bytes_max: usize,
    ) -> Result<ScrapeBody, String> {
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = text(header::CONTENT_TYPE).unwrap_or("").trim().to_ascii_lowercase();
        let is_protobuf = kind.starts_with("application/vnd.google.protobuf");
        if is_protobuf && !kind.contains("delimited") {
            return Err(format!("cannot read content type {kind:?}: expected delimited protobuf"));
        }
        if kind.starts_with("text/html") {
            return Err("the response is HTML; check the path".to_owned());
        }
        let body = response.body();
        let bytes = match text(header::CONTENT_ENCODING).unwrap_or("identity") {
            "identity" | "" => body.clone(),
            "gzip" | "x-gzip" => gunzip(body, bytes_max)?,
            other => {
                return Err(format!("content encoding {other:?} was not requested"));
            }
        };
        if kind.starts_with("application/openmetrics-text") && !has_eof_marker(&bytes) {
            return Err("incomplete response: # EOF is missing".to_owned());
        }
        Ok(ScrapeBody { is_protobuf, bytes })
    }

    pub(crate) fn parse(&self, sink: &mut dyn SampleSink) {
        match self.is_protobuf {
            true => prometheus_protobuf::read_scrape(&self.bytes, sink),
            // Reading from memory does not fail.
            false => exposition::read(&mut &*self.bytes, sink)
                .expect("reading from memory does not fail"),
        }
    }
}

fn has_eof_marker(page: &[u8]) -> bool {
    let page = page.trim_ascii_end();
    page.strip_suffix(b"# EOF").is_some_and(|rest| rest.last().is_none_or(|&last| last == b'\n'))
}

fn gunzip(body: &[u8], bytes_max: usize) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(body)
        .take((bytes_max as u64).saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot decompress gzip: {error}"))?;
    match bytes.len() > bytes_max {
        true => Err(format!("response exceeds {bytes_max} bytes")),
        false => Ok(bytes.into()),
    }
}

/// Sink that adds the target labels.
pub(crate) struct WithTargetLabels<'a, 'b, R: SeriesSink> {
    pub(crate) mapper: RowMapper<'a, R>,
    pub(crate) labels: &'b [(String, String)],
    pub(crate) honor_labels: bool,
    pub(crate) honor_timestamps: bool,
    /// First syntax error.
    pub(crate) first_error: Option<String>,
}

impl<R: SeriesSink> WithTargetLabels<'_, '_, R> {
    /// As in Prometheus (`mutateSampleLabels` in `scrape/scrape.go`): an empty scraped label counts
    /// as present only with `honor_labels`; a label that yields gets the prefix `exported_`,
    /// repeatedly if needed, shorter names first.
    fn attach(&self, labels: &mut Vec<(String, String)>) {
        if self.honor_labels {
            let label_count = labels.len();
            for (name, value) in self.labels {
                if !labels[..label_count].iter().any(|label| label.0 == *name) {
                    labels.push((name.clone(), value.clone()));
                }
            }
            return;
        }
        let is_ours = |name: &str| self.labels.iter().any(|label| label.0 == name);
        let (mut moved, retained): (Vec<_>, Vec<_>) =
            labels.drain(..).partition(|label| is_ours(&label.0));
        *labels = retained;
        labels.extend_from_slice(self.labels);
        moved.retain(|label| !label.1.is_empty());
        model::sort::by_key(&mut moved, |label| label.0.len());
        for (mut name, value) in moved {
            while labels.iter().any(|label| label.0 == name) {
                name.insert_str(0, "exported_");
            }
            labels.push((name, value));
        }
    }
}

impl<R: SeriesSink> SampleSink for WithTargetLabels<'_, '_, R> {
    fn number(&mut self, value: f64) {
        self.mapper.number(value);
    }

    fn sample(&mut self, reading: DecodedSample) {
        self.sample_with_exemplars(reading, Vec::new());
    }

    fn sample_with_exemplars(
        &mut self,
        mut reading: DecodedSample,
        exemplars: Vec<DecodedExemplar>,
    ) {
        if self.first_error.is_some() {
            return;
        }
        if let (false, Some(end)) = (self.honor_timestamps, reading.end) {
            // A creation time is not a timestamp.
            let is_created =
                |&start: &i64| reading.temporality == SampleTemporality::Cumulative && start < end;
            (reading.start, reading.end) = (reading.start.filter(is_created), None);
        }
        self.attach(&mut reading.labels);
        self.mapper.sample_with_exemplars(reading, exemplars);
    }

    fn skipped(&mut self, what: &'static str) {
        self.mapper.skipped(what);
    }

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        if error.is_invalid_value {
            return self.mapper.error(error);
        }
        self.first_error = Some(error.to_string());
        ControlFlow::Break(())
    }

    fn description(&mut self, metric: &str, text: &str) {
        self.mapper.description(metric, text);
    }
}

#[cfg(test)]
mod tests {
    use decode::VecSeriesSink;
    use decode::mapper::MappingDefaults;

    use super::*;

    #[track_caller]
    fn check(honor_labels: bool, labels: &[(&str, &str)], page: &str, expected: &str) {
        let owned = |label: &(&str, &str)| (label.0.to_owned(), label.1.to_owned());
        let labels: Vec<_> = labels.iter().map(owned).collect();
        let mut rows = VecSeriesSink::default();
        let placing = RowMapper::new(
            MappingDefaults { time: Some(5), ..MappingDefaults::default() },
            &mut rows,
        );
        let mut attached = WithTargetLabels {
            mapper: placing,
            labels: &labels,
            honor_labels,
            honor_timestamps: true,
            first_error: None,
        };
        let page = ScrapeBody { is_protobuf: false, bytes: format!("{page}\n").into() };
        page.parse(&mut attached);
        let (damage, summary) = (attached.first_error.take(), attached.mapper.finish());
        assert_eq!((damage, summary.rejected), (None, 0));
        assert_eq!(rows.rows[0].0.to_string(), expected);
    }

    #[test]
    fn target_labels_override_exposed_labels() {
        let job = [("job", "j")];
        check(false, &job, "a 1", r#"a{job="j"}"#);
        check(false, &job, r#"a{job="x"} 1"#, r#"a{exported_job="x",job="j"}"#);
        check(false, &job, r#"a{job=""} 1"#, r#"a{job="j"}"#);
        check(
            false,
            &job,
            r#"a{exported_job="y",job="x"} 1"#,
            r#"a{exported_exported_job="x",exported_job="y",job="j"}"#,
        );
        let both = [("exported_job", "k"), ("job", "j")];
        check(
            false,
            &both,
            r#"a{exported_job="y",job="x"} 1"#,
            r#"a{exported_exported_exported_job="y",exported_exported_job="x",exported_job="k",job="j"}"#,
        );
    }

    #[test]
    fn honor_labels_keeps_exposed_labels() {
        let job = [("job", "j"), ("instance", "i")];
        check(true, &job, r#"a{job="x"} 1"#, r#"a{instance="i",job="x"}"#);
        check(true, &job, r#"a{job="",b="c"} 1"#, r#"a{b="c",instance="i"}"#);
    }

    #[test]
    fn openmetrics_requires_an_eof_marker() {
        assert!(
            has_eof_marker(b"a 1\n# EOF")
                && has_eof_marker(b"# EOF\n")
                && has_eof_marker(b"a 1\n# EOF\r\n")
        );
        assert!(
            !has_eof_marker(b"a 1\n") && !has_eof_marker(b"a 1 # EOF\n") && !has_eof_marker(b"")
        );
    }
}
