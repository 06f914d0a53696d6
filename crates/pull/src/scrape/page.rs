//! What came as a page: unpacked, and read by the kind it says it is.

use std::io::Read as _;
use std::ops::ControlFlow;

use bytes::Bytes;
use collect::place::Placing;
use collect::{Over, Reading, Rows, Sink, Trouble, exposition, prometheus_protobuf};
use http::{Response, header};

/// A page, unpacked.
#[derive(Debug)]
pub(crate) struct Page {
    is_protobuf: bool,
    bytes: Bytes,
}

impl Page {
    /// Undoes what the answer was packed with. A kind that nobody knows is read as text.
    pub(crate) fn unpack(response: &Response<Bytes>, bytes_max: usize) -> Result<Page, String> {
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = text(header::CONTENT_TYPE).unwrap_or("").trim().to_ascii_lowercase();
        let is_protobuf = kind.starts_with("application/vnd.google.protobuf");
        if is_protobuf && !kind.contains("delimited") {
            return Err(format!("the page is {kind:?}; only delimited protocol buffers are read"));
        }
        if kind.starts_with("text/html") {
            return Err("the page is HTML; is it the right path?".to_owned());
        }
        let body = response.body();
        let bytes = match text(header::CONTENT_ENCODING).unwrap_or("identity") {
            "identity" | "" => body.clone(),
            "gzip" | "x-gzip" => gunzip(body, bytes_max)?,
            other => {
                return Err(format!("the page is packed as {other:?}, which was not asked for"));
            }
        };
        if kind.starts_with("application/openmetrics-text") && !has_end(&bytes) {
            return Err("the page ends without # EOF: it is not whole".to_owned());
        }
        Ok(Page { is_protobuf, bytes })
    }

    pub(crate) fn read(&self, sink: &mut dyn Sink) {
        match self.is_protobuf {
            true => prometheus_protobuf::read(&self.bytes, sink),
            // Bytes in memory are read without errors of a device.
            false => exposition::read(&mut &*self.bytes, sink)
                .expect("BUG: memory cannot fail to be read"),
        }
    }
}

fn has_end(page: &[u8]) -> bool {
    let page = page.trim_ascii_end();
    page.strip_suffix(b"# EOF").is_some_and(|rest| rest.last().is_none_or(|&last| last == b'\n'))
}

fn gunzip(body: &[u8], bytes_max: usize) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(body)
        .take((bytes_max as u64).saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| format!("the page is no gzip: {error}"))?;
    match bytes.len() > bytes_max {
        true => Err(format!("the page has more than {bytes_max} bytes")),
        false => Ok(bytes.into()),
    }
}

/// Readings of a page with the labels of its job.
pub(crate) struct Attached<'a, 'b, R: Rows> {
    pub(crate) placing: Placing<'a, R>,
    pub(crate) labels: &'b [(String, String)],
    pub(crate) honor_labels: bool,
    pub(crate) honor_timestamps: bool,
    /// What first was no line or message at all.
    pub(crate) damage: Option<String>,
}

impl<R: Rows> Attached<'_, '_, R> {
    /// As Prometheus does it (`mutateSampleLabels` in `scrape/scrape.go`): a label of the page without value counts
    /// as one only where the page's labels are honoured; what gives way gets `exported_` before its name, as often
    /// as it takes, the shorter names first.
    fn attach(&self, labels: &mut Vec<(String, String)>) {
        if self.honor_labels {
            let own = labels.len();
            for (name, value) in self.labels {
                if !labels[..own].iter().any(|label| label.0 == *name) {
                    labels.push((name.clone(), value.clone()));
                }
            }
            return;
        }
        let is_ours = |name: &str| self.labels.iter().any(|label| label.0 == name);
        let (mut moved, kept): (Vec<_>, Vec<_>) =
            labels.drain(..).partition(|label| is_ours(&label.0));
        *labels = kept;
        labels.extend_from_slice(self.labels);
        moved.retain(|label| !label.1.is_empty());
        moved.sort_by_key(|label| label.0.len());
        for (mut name, value) in moved {
            while labels.iter().any(|label| label.0 == name) {
                name.insert_str(0, "exported_");
            }
            labels.push((name, value));
        }
    }
}

impl<R: Rows> Sink for Attached<'_, '_, R> {
    fn number(&mut self, value: f64) {
        self.placing.number(value);
    }

    fn reading(&mut self, mut reading: Reading) {
        if self.damage.is_some() {
            return;
        }
        if let (false, Some(end)) = (self.honor_timestamps, reading.end) {
            // Since when it counts is no time stamp.
            let is_created = |&start: &i64| reading.over == Over::Total && start < end;
            (reading.start, reading.end) = (reading.start.filter(is_created), None);
        }
        self.attach(&mut reading.labels);
        self.placing.reading(reading);
    }

    fn skipped(&mut self, what: &'static str) {
        self.placing.skipped(what);
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        if trouble.is_absurd {
            return self.placing.trouble(trouble);
        }
        self.damage = Some(trouble.to_string());
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests {
    use collect::RowsKept;
    use collect::place::Rules;

    use super::*;

    #[track_caller]
    fn check(honor_labels: bool, labels: &[(&str, &str)], page: &str, expected: &str) {
        let owned = |label: &(&str, &str)| (label.0.to_owned(), label.1.to_owned());
        let labels: Vec<_> = labels.iter().map(owned).collect();
        let mut rows = RowsKept::default();
        let placing = Placing::new(Rules { time: Some(5), ..Rules::default() }, &mut rows);
        let mut attached = Attached {
            placing,
            labels: &labels,
            honor_labels,
            honor_timestamps: true,
            damage: None,
        };
        let page = Page { is_protobuf: false, bytes: format!("{page}\n").into() };
        page.read(&mut attached);
        let (damage, placed) = (attached.damage.take(), attached.placing.finish());
        assert_eq!((damage, placed.refused), (None, 0));
        assert_eq!(rows.rows[0].0.to_string(), expected);
    }

    #[test]
    fn labels_of_the_job_come_before_those_of_the_page() {
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
    fn or_behind_them() {
        let job = [("job", "j"), ("instance", "i")];
        check(true, &job, r#"a{job="x"} 1"#, r#"a{instance="i",job="x"}"#);
        check(true, &job, r#"a{job="",b="c"} 1"#, r#"a{b="c",instance="i"}"#);
    }

    #[test]
    fn a_page_of_openmetrics_has_an_end() {
        assert!(has_end(b"a 1\n# EOF") && has_end(b"# EOF\n") && has_end(b"a 1\n# EOF\r\n"));
        assert!(!has_end(b"a 1\n") && !has_end(b"a 1 # EOF\n") && !has_end(b""));
    }
}
