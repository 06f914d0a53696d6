//! What came as a page: unpacked, and read by the kind it says it is.

use std::io::Read as _;

use bytes::Bytes;
use collect::place::Placing;
use collect::{Reading, Rows, Sink, Trouble, exposition, prometheus_protobuf};
use http::{Response, header};
use std::ops::ControlFlow;

/// A page, unpacked.
#[derive(Debug)]
pub(crate) struct Page {
    is_protobuf: bool,
    bytes: Bytes,
}

impl Page {
    /// Undoes what the answer was packed with.
    pub(crate) fn unpack(response: &Response<Bytes>, bytes_max: usize) -> Result<Page, String> {
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = text(header::CONTENT_TYPE).unwrap_or("").to_ascii_lowercase();
        let is_protobuf = kind.starts_with("application/vnd.google.protobuf");
        if is_protobuf && !kind.contains("delimited") {
            return Err(format!("the page is {kind}; only delimited protocol buffers are read"));
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

fn gunzip(body: &[u8], bytes_max: usize) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(body)
        .take(bytes_max as u64 + 1)
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
}

impl<R: Rows> Sink for Attached<'_, '_, R> {
    fn number(&mut self, value: f64) {
        self.placing.number(value);
    }

    fn reading(&mut self, mut reading: Reading) {
        if !self.honor_timestamps {
            (reading.start, reading.end) = (None, None);
        }
        for (name, value) in self.labels {
            let own = reading.labels.iter().position(|label| label.0 == *name);
            match own {
                Some(_) if self.honor_labels => continue,
                Some(at) => reading.labels[at].0 = format!("exported_{name}"),
                None => {}
            }
            reading.labels.push((name.clone(), value.clone()));
        }
        self.placing.reading(reading);
    }

    fn skipped(&mut self, what: &'static str) {
        self.placing.skipped(what);
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        self.placing.trouble(trouble)
    }
}
