//! Settings of the comparison of both ends: the table `[wire_ends]`.

use std::ops::RangeInclusive;

use http::HeaderValue;
use net::Endpoint;
use net::tls::ClientTls;
use role::BoxError;
use role::settings::{FilePath, SettingsCheck, TableRef, client_tls, read_token};
use serde::Deserialize;
use wire::ConnectionEnd;

/// Path of reports.
pub(crate) const PATH: &str = "/v1/wire/ends";
const TABLE: TableRef<'static> = TableRef::named("wire_ends");
const ONE_IN: RangeInclusive<u32> = 1..=65_536;

/// `[wire_ends]`: the requests of `[wire]` are compared with those of the other end of their
/// connections.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WireEndsTable {
    /// Whether this node compares: it receives the requests of others, and has its own.
    receive: bool,
    /// URL of the node that compares.
    report_to: Option<String>,
    /// File with the bearer token, of the scope `ingest`.
    token_file: Option<FilePath>,
    /// PEM file with the CA certificate of the node; default: the system's CAs.
    ca: Option<FilePath>,
    /// PEM file with the client certificate.
    certificate: Option<FilePath>,
    key: Option<FilePath>,
    /// `client` or `server`: end of all connections; default: by the addresses of this host.
    end: Option<String>,
    /// One of this many requests is reported: 1.
    one_in: Option<u32>,
}

/// How requests are reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndSettings {
    /// Whether this node compares.
    pub(crate) receives: bool,
    /// The node that compares, if it is another one.
    pub(crate) target: Option<EndTarget>,
    /// End of all connections; `None` to look at the addresses of this host.
    pub(crate) end: Option<ConnectionEnd>,
    pub(crate) one_in: u32,
}

/// The node that compares.
#[derive(Clone, Debug)]
pub(crate) struct EndTarget {
    pub(crate) url: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) tls: ClientTls,
}

impl WireEndsTable {
    /// Reports every invalid value.
    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        if let Some(url) = &self.report_to {
            check.url(TABLE, "report_to", url);
        }
        if self.receive == self.report_to.is_some() {
            let what = "expected either `receive = true`, on the node that compares, or \
                        `report_to` with its URL";
            check.problem(TABLE, "receive", what);
        }
        check.file(TABLE, "token_file", self.token_file.as_ref());
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        check.client_tls(TABLE, ca.as_ref(), certificate.as_ref(), key.as_ref());
        if let Err(what) = self.end() {
            check.problem(TABLE, "end", what);
        }
        if let Some(one_in) = self.one_in.filter(|one_in| !ONE_IN.contains(one_in)) {
            let (min, max) = ONE_IN.into_inner();
            let what = format!("one_in is {one_in}, must be {min} to {max}");
            check.problem(TABLE, "one_in", what);
        }
    }

    /// Whether this node compares.
    pub(crate) fn receives(&self) -> bool {
        self.receive
    }

    fn end(&self) -> Result<Option<ConnectionEnd>, String> {
        match self.end.as_deref() {
            None => Ok(None),
            Some("client") => Ok(Some(ConnectionEnd::Client)),
            Some("server") => Ok(Some(ConnectionEnd::Server)),
            Some(other) => Err(format!("end is {other:?}, expected client or server")),
        }
    }

    /// The settings, with the token.
    pub(crate) fn settings(&self) -> Result<EndSettings, BoxError> {
        let target = self.report_to.as_ref().map(|url| self.target(url)).transpose()?;
        let (receives, end) = (self.receive, self.end()?);
        Ok(EndSettings { receives, target, end, one_in: self.one_in.unwrap_or(1).max(1) })
    }

    fn target(&self, url: &str) -> Result<EndTarget, BoxError> {
        let token = read_token("[wire_ends]", self.token_file.as_ref())?;
        let authorization = token.map(|token| net::bearer(&token)).transpose();
        let authorization = authorization.map_err(|_| {
            "the token of [wire_ends] has characters that are not allowed in a header".to_owned()
        })?;
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        Ok(EndTarget {
            url: url.to_owned(),
            endpoint: Endpoint::parse(url)?.join(PATH),
            authorization,
            tls: client_tls(ca.as_ref(), certificate.as_ref(), key.as_ref()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CaptureSettings;

    #[track_caller]
    fn check_problem(keys: &str, expected: &str) {
        let keys = format!("[wire_ends]\n{keys}");
        let problems = CaptureSettings::with_keys("h", &keys).unwrap_err().to_string();
        assert!(problems.contains(expected), "{problems}");
    }

    #[test]
    fn a_node_compares_or_reports() {
        CaptureSettings::with_keys("h", "[wire_ends]\nreceive = true").unwrap();
        let keys = "[wire_ends]\nreport_to = 'https://north:7717'\nend = 'client'\none_in = 8";
        CaptureSettings::with_keys("h", keys).unwrap();
        let either = "expected either `receive = true`, on the node that compares, or `report_to`";
        check_problem("", either);
        check_problem("receive = true\nreport_to = 'http://north:7717'", either);
    }

    #[test]
    fn invalid_values_are_reported() {
        check_problem("report_to = 'north'", "must begin with http:// or https://");
        check_problem("receive = true\nend = 'both'", "end is \"both\", expected client or server");
        check_problem("receive = true\none_in = 0", "one_in is 0, must be 1 to 65536");
        check_problem(
            "receive = true\ntoken_file = '/nowhere'",
            "token_file: cannot read /nowhere",
        );
        check_problem("receives = true", "did you mean \"receive\"?");
    }

    #[test]
    fn reports_go_to_the_path_of_their_route() {
        let table = WireEndsTable {
            report_to: Some("https://north:7717/proxy".to_owned()),
            end: Some("server".to_owned()),
            ..WireEndsTable::default()
        };
        let settings = table.settings().unwrap();
        let target = settings.target.unwrap();
        assert_eq!(target.endpoint.path, "/proxy/v1/wire/ends");
        assert_eq!((settings.end, settings.one_in), (Some(ConnectionEnd::Server), 1));
        assert!(!settings.receives);
    }
}
