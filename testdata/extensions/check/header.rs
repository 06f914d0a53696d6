//! Example of a check: one request, whose response must have a header. The file has a setting with
//! its check, the phase `headers` of `probe_duration`, an error, and a test.

use bytes::Bytes;
use http::Request;
use net::dial::ResponseLimits;
use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;

use crate::probe::{Attempt, Probe};

/// Size limit of the response body.
const BODY_BYTES_MAX: usize = 1 << 20;

/// `header_url = "http://…"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderProbe {
    /// `http://` or `https://`.
    header_url: String,
    /// Name of the header; default: `server`.
    header: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error("cannot find the header {name}: the response has {count} others; change `header`")]
    Absent { name: String, count: usize },
}

impl HeaderProbe {
    fn header(&self) -> &str {
        self.header.as_deref().unwrap_or("server")
    }

    fn find(&self, headers: &http::HeaderMap) -> Result<(), HeaderError> {
        let absent =
            || HeaderError::Absent { name: self.header().to_owned(), count: headers.len() };
        headers.get(self.header()).map(|_| ()).ok_or_else(absent)
    }
}

impl Probe for HeaderProbe {
    const KEY: &'static str = "header_url";
    const KEYS: &'static [&'static str] = &["header_url", "header"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.url(table, "header_url", &self.header_url);
        if self.header().contains(char::is_whitespace) {
            check.problem(table, "header", "header has white space, which no header name has");
        }
    }

    fn url(&self) -> String {
        self.header_url.clone()
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(&self.header_url)
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let mut connection = attempt.connect_http().await?;
        let request = Request::get(&attempt.target.path).body(Bytes::new());
        let request = request.map_err(|error| error.to_string())?;
        let limits = ResponseLimits { timeout: attempt.timeout, max_bytes: BODY_BYTES_MAX };
        let answer = connection.send_and_truncate(request, limits).await;
        let answer = answer.map_err(|error| error.to_string())?;
        attempt.report.phases.push(("headers", answer.time_to_headers));
        self.find(answer.response.headers()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use role::settings::Document;

    use super::*;

    #[test]
    fn an_absent_header_is_named() {
        let probe = HeaderProbe::default();
        let mut headers = http::HeaderMap::new();
        let error = probe.find(&headers).unwrap_err().to_string();
        let expected = "cannot find the header server: the response has 0 others; change `header`";
        assert_eq!(error, expected);
        headers.insert("server", http::HeaderValue::from_static("a"));
        assert!(probe.find(&headers).is_ok());
    }

    #[test]
    fn its_settings_are_checked() {
        let text = "[[check]]\nheader_url = \"ftp://a\"\nheader = \"a b\"\n";
        let document = Document::parse(text, Path::new("/")).unwrap();
        let table = TableRef::nth("check", 0);
        let probe: HeaderProbe = document.read_table(table, HeaderProbe::KEYS).unwrap();
        let mut check = SettingsCheck::new(&document);
        probe.check(table, &mut check);
        let problems = check.finish().to_string();
        assert!(problems.contains("must begin with http:// or https:// and a host"), "{problems}");
        assert!(problems.contains("header has white space"), "{problems}");
    }
}
