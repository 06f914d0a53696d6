//! Table `[alerts.primary]`: the site that notifies contacts while it answers, and requests to it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request};
use net::Endpoint;
use net::dial::{DialTimeouts, Dialer, ResponseLimits};
use net::tls::ClientTls;
use notify::{NotificationKey, NotifiedState, SiteDelivery};
use role::BoxError;
use role::settings::{
    DurationSetting, FilePath, SettingsCheck, TableRef, client_tls, duration_or, read_token,
};
use serde::Deserialize;

use crate::alert_place::AlertPlace;
use crate::delivery_api::{DELIVERIES, SiteChanges};
use crate::site_acknowledgements::SiteAcknowledgement;
use crate::site_clearances::SiteClearance;

const TABLE: TableRef<'static> = TableRef::named("alerts.primary");
/// Time without an answer of the primary after which this site sends.
const FAILOVER_AFTER: Duration = Duration::from_secs(30);
const FAILOVER_AFTER_MIN: Duration = Duration::from_millis(500);
const FAILOVER_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest time between two requests, and that of a request.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// Maximum size of a response: 1,000 deliveries with long names, and 256 KiB each of
/// acknowledgements and clearances.
const RESPONSE_BYTES_MAX: usize = 4 << 20;
/// Characters of a response with an error that are shown.
const EXCERPT_CHARS: usize = 200;

/// `[alerts.primary]`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrimarySiteTable {
    url: String,
    failover_after: Option<DurationSetting>,
    /// File with the bearer token, scope `read`.
    token_file: Option<FilePath>,
    /// PEM file with the CA certificate of the site; default: the system's CAs.
    ca: Option<FilePath>,
    /// PEM file with the client certificate.
    certificate: Option<FilePath>,
    key: Option<FilePath>,
}

impl PrimarySiteTable {
    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        check.url(TABLE, "url", &self.url);
        check.range(
            TABLE,
            "failover_after",
            self.failover_after,
            FAILOVER_AFTER_MIN..=FAILOVER_AFTER_MAX,
        );
        check.file(TABLE, "token_file", self.token_file.as_ref());
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        check.client_tls(TABLE, ca.as_ref(), certificate.as_ref(), key.as_ref());
        check.contents(TABLE, "url", || self.read().map(drop));
    }

    pub(crate) fn read(&self) -> Result<PrimarySite, BoxError> {
        let token = read_token("[alerts.primary]", self.token_file.as_ref())?;
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        let tls = client_tls(ca.as_ref(), certificate.as_ref(), key.as_ref());
        if tls.has_files() {
            tls.config()?;
        }
        Ok(PrimarySite {
            endpoint: Endpoint::parse(&self.url)?,
            failover_after: duration_or(self.failover_after, FAILOVER_AFTER),
            authorization: token.map(|token| net::bearer(&token)).transpose()?,
            tls,
        })
    }
}

/// A site that notifies contacts while it answers.
#[derive(Clone, Debug)]
pub(crate) struct PrimarySite {
    endpoint: Endpoint,
    pub(crate) failover_after: Duration,
    authorization: Option<HeaderValue>,
    tls: ClientTls,
}

/// What is known of the deliveries of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveryPosition {
    /// When the site started; the numbers begin anew.
    pub(crate) epoch: i64,
    /// Number of the last known delivery.
    pub(crate) number: u64,
}

/// Deliveries of a site after a position.
#[derive(Debug, Default)]
pub(crate) struct DeliveryPage {
    pub(crate) deliveries: Vec<SiteDelivery>,
    /// All of the site.
    pub(crate) changes: SiteChanges,
    pub(crate) position: DeliveryPosition,
}

impl PrimarySite {
    /// Its URL.
    pub(crate) fn url(&self) -> String {
        self.endpoint.to_string()
    }

    /// Time between two requests.
    pub(crate) fn poll_interval(&self) -> Duration {
        (self.failover_after / 5).min(POLL_INTERVAL_MAX)
    }

    /// Asks for what it delivered after a position. An error is its cause.
    pub(crate) async fn deliveries(&self, after: DeliveryPosition) -> Result<DeliveryPage, String> {
        let timeout = (self.failover_after / 3).min(REQUEST_TIMEOUT_MAX);
        match tokio::time::timeout(timeout, self.request(after, timeout)).await {
            Ok(page) => page,
            Err(_) => Err(format!("no response from {} in {timeout:?}", self.endpoint.authority())),
        }
    }

    async fn request(
        &self,
        after: DeliveryPosition,
        timeout: Duration,
    ) -> Result<DeliveryPage, String> {
        let DeliveryPosition { epoch, number } = after;
        let query = format!("{}?epoch={epoch}&since={number}", DELIVERIES.path);
        let endpoint = self.endpoint.join(&query);
        let timeouts = DialTimeouts { resolve: timeout, connect: timeout, tls: timeout };
        let dialer = Dialer::for_target(&endpoint, &self.tls, &[], timeouts)
            .map_err(|error| error.to_string())?;
        let agent = concat!("topdeck/", env!("CARGO_PKG_VERSION"));
        let mut request = Request::get(endpoint.path.as_str()).header(USER_AGENT, agent);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
        let (mut connection, _) =
            dialer.dial(&endpoint).await.map_err(|error| error.to_string())?;
        let limits = ResponseLimits { timeout, max_bytes: RESPONSE_BYTES_MAX };
        let response = connection.send(request, limits).await.map_err(|error| error.to_string())?;
        let (head, body) = response.response.into_parts();
        if !head.status.is_success() {
            let text = String::from_utf8_lossy(&body);
            let text: String = text.trim().chars().take(EXCERPT_CHARS).collect();
            return Err(format!("{} responded {}: {text}", endpoint.authority(), head.status));
        }
        parse_page(&body).map_err(|cause| {
            format!("{} responded with something else: {cause}", endpoint.authority())
        })
    }
}

#[derive(Deserialize)]
struct PageJson {
    epoch: i64,
    deliveries: Vec<DeliveryJson>,
    acknowledgements: Option<Vec<AcknowledgementJson>>,
    /// A primary of an earlier version has neither.
    #[serde(default)]
    now_ns: i64,
    #[serde(default)]
    clearances: Vec<ClearanceJson>,
}

#[derive(Deserialize)]
struct ClearanceJson {
    file: String,
    group: String,
    fingerprint: String,
    at_ns: i64,
    by: String,
    note: String,
}

/// A primary of an earlier version has no `file` and `group`: which alert is meant is not known.
/// The severity is that of an alert of an own rule.
#[derive(Deserialize)]
struct AcknowledgementJson {
    severity: Option<u8>,
    file: Option<String>,
    group: Option<String>,
    fingerprint: String,
    at_ns: i64,
    until_ns: i64,
    by: String,
    note: String,
}

#[derive(Deserialize)]
struct DeliveryJson {
    number: u64,
    contact: String,
    alert_id: String,
    transition: u64,
    reminder: u32,
    fingerprint: String,
    state: String,
    at_ns: i64,
}

/// Parses a response of [`DELIVERIES`].
fn parse_page(body: &[u8]) -> Result<DeliveryPage, String> {
    let page: PageJson = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut position = DeliveryPosition { epoch: page.epoch, number: 0 };
    let mut deliveries = Vec::with_capacity(page.deliveries.len());
    for delivery in page.deliveries {
        let DeliveryJson { number, contact, alert_id, transition, reminder, .. } = delivery;
        let state = NotifiedState::from_name(&delivery.state)
            .ok_or_else(|| format!("found the state {:?}", delivery.state))?;
        position.number = position.number.max(number);
        deliveries.push(SiteDelivery {
            number,
            contact,
            key: NotificationKey { alert_id, transition, reminder },
            fingerprint: delivery.fingerprint,
            state,
            at_ns: delivery.at_ns,
        });
    }
    let acknowledgement = |json: AcknowledgementJson| {
        let AcknowledgementJson { file, group, fingerprint, at_ns, until_ns, by, note, severity } =
            json;
        let place = AlertPlace { file: file?, group: group?, fingerprint };
        Some(SiteAcknowledgement { place, at_ns, until_ns, by, note, severity })
    };
    let acknowledgements =
        page.acknowledgements.map(|all| all.into_iter().filter_map(acknowledgement).collect());
    let clearance = |json: ClearanceJson| {
        let ClearanceJson { file, group, fingerprint, at_ns, by, note } = json;
        SiteClearance { place: AlertPlace { file, group, fingerprint }, at_ns, by, note }
    };
    let clearances = page.clearances.into_iter().map(clearance).collect();
    let changes = SiteChanges { acknowledgements, clearances, now_ns: page.now_ns };
    Ok(DeliveryPage { deliveries, changes, position })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery_api::page_json;

    fn delivery() -> SiteDelivery {
        let key = NotificationKey { alert_id: "a1".to_owned(), transition: 7, reminder: 1 };
        SiteDelivery {
            number: 3,
            contact: "on call".to_owned(),
            key,
            fingerprint: "00ff".to_owned(),
            state: NotifiedState::Acknowledged,
            at_ns: 1_700_000_000_000_000_000,
        }
    }

    #[test]
    fn a_page_is_read_as_written() {
        let place = AlertPlace {
            file: "rules.yaml".to_owned(),
            group: "g".to_owned(),
            fingerprint: "00ff".to_owned(),
        };
        let cleared = SiteClearance {
            place: place.clone(),
            at_ns: 1_700_000_000_000_000_002,
            by: "bob".to_owned(),
            note: "it is \"gone\"".to_owned(),
        };
        let acknowledged = SiteAcknowledgement {
            place,
            at_ns: 1_700_000_000_000_000_000,
            until_ns: 1_700_003_600_000_000_000,
            by: "ann".to_owned(),
            note: "on \"it\"".to_owned(),
            severity: Some(3),
        };
        let other = SiteAcknowledgement { severity: None, ..acknowledged.clone() };
        let changes = SiteChanges {
            acknowledgements: Some(vec![acknowledged, other]),
            clearances: vec![cleared],
            now_ns: 1_700_000_000_000_000_003,
        };
        let text = page_json(1_700_000_000_000_000_001, &[delivery()], &changes);
        let page = parse_page(text.to_string().as_bytes()).expect("a page");
        assert_eq!(page.deliveries, [delivery()]);
        assert_eq!(page.changes, changes);
        let position = DeliveryPosition { epoch: 1_700_000_000_000_000_001, number: 3 };
        assert_eq!(page.position, position);
    }

    #[test]
    fn other_responses_are_errors() {
        for text in ["", "[]", "{\"epoch\":1}", "<html>"] {
            assert!(parse_page(text.as_bytes()).is_err(), "{text}");
        }
        let page = page_json(1, &[delivery()], &SiteChanges::default()).to_string();
        let text = page.replace("\"acknowledged\"", "\"gone\"");
        assert_eq!(parse_page(text.as_bytes()).unwrap_err(), "found the state \"gone\"");
    }

    /// A site of an earlier version: what was acknowledged there is not known to have ended.
    #[test]
    fn a_page_without_acknowledgements_and_clearances_says_nothing_of_them() {
        let page = parse_page(b"{\"epoch\":1,\"deliveries\":[]}").expect("a page");
        assert_eq!(page.changes, SiteChanges::default());
    }

    #[test]
    fn requests_fit_into_the_time_before_a_failover() {
        let table = |failover_after: Option<u64>| PrimarySiteTable {
            url: "http://north.example:7717/deck".to_owned(),
            failover_after: failover_after.map(|ms| DurationSetting(Duration::from_millis(ms))),
            token_file: None,
            ca: None,
            certificate: None,
            key: None,
        };
        let site = table(None).read().expect("valid");
        assert_eq!(site.url(), "http://north.example:7717/deck");
        assert_eq!(
            (site.failover_after, site.poll_interval()),
            (FAILOVER_AFTER, POLL_INTERVAL_MAX)
        );
        let site = table(Some(1000)).read().expect("valid");
        assert_eq!(site.poll_interval(), Duration::from_millis(200));
    }
}
