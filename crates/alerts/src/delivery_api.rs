//! `/v1/deliveries`: what contacts got from this site, and what was acknowledged and cleared here,
//! for a standby site that sends in its place.

use notify::SiteDelivery;
use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::integer;
use role::{Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec};

use crate::alert_place::AlertPlace;
use crate::notifier_handle::NotifierHandle;
use crate::published_alerts::PublishedState;
use crate::site_acknowledgements::{SiteAcknowledgement, site_acknowledgements};
use crate::site_clearances::SiteClearance;

/// Deliveries since the start.
pub(crate) static DELIVERIES: RouteSpec = RouteSpec {
    name: "deliveries",
    path: "/v1/deliveries",
    about: "Notifications that contacts got from this site, oldest first, at most 1,000: a standby \
            site asks for them. 503 if this site cannot be relied upon to notify contacts. Each \
            response has all acknowledgements that were made at this site, and the clearances \
            of the last 15 minutes, the newest 1,000 of each.",
    parameters: &[
        Parameter::integer("since", "number of the last known delivery; default: 0"),
        Parameter::integer("epoch", "epoch of the response before; in another one, since is 0"),
    ],
    format: RouteFormat::Json,
};

/// What people did with alerts at a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteChanges {
    /// `None` of a site that does not tell them.
    pub(crate) acknowledgements: Option<Vec<SiteAcknowledgement>>,
    pub(crate) clearances: Vec<SiteClearance>,
    /// Time of the site.
    pub(crate) now_ns: i64,
}

impl SiteChanges {
    /// Those of this site.
    pub(crate) fn of_site(state: &PublishedState) -> SiteChanges {
        SiteChanges {
            acknowledgements: Some(site_acknowledgements(state)),
            clearances: state.clearances.listed(state.now_ns),
            now_ns: state.now_ns,
        }
    }
}

/// Response of `/v1/deliveries`. The epoch is the time at which this site started.
pub(crate) fn deliveries(
    notifier: &NotifierHandle,
    changes: impl FnOnce() -> SiteChanges,
    epoch: i64,
    query: &RouteQuery,
) -> Result<Json, RouteError> {
    let since = query.integer("since", 0, u64::MAX)?;
    let known_epoch = query.integer("epoch", epoch, i64::MAX)?;
    let since = if known_epoch == epoch { since } else { 0 };
    let found = notifier.deliveries_after(since).map_err(RouteError::Unavailable)?;
    Ok(page_json(epoch, &found, &changes()))
}

pub(crate) fn page_json(epoch: i64, deliveries: &[SiteDelivery], changes: &SiteChanges) -> Json {
    let acknowledgements = changes.acknowledgements.iter().flatten();
    Object(vec![
        ("schema", integer(1)),
        ("epoch", Integer(epoch.into())),
        ("now_ns", Integer(changes.now_ns.into())),
        ("deliveries", List(deliveries.iter().map(delivery_json).collect())),
        ("acknowledgements", List(acknowledgements.map(acknowledgement_json).collect())),
        ("clearances", List(changes.clearances.iter().map(clearance_json).collect())),
    ])
}

fn place_fields(place: &AlertPlace) -> Vec<(&'static str, Json)> {
    let AlertPlace { file, group, fingerprint } = place;
    vec![
        ("file", Text(file.clone())),
        ("group", Text(group.clone())),
        ("fingerprint", Text(fingerprint.clone())),
    ]
}

fn clearance_json(one: &SiteClearance) -> Json {
    let mut fields = place_fields(&one.place);
    fields.extend([
        ("at_ns", Integer(one.at_ns.into())),
        ("by", Text(one.by.clone())),
        ("note", Text(one.note.clone())),
    ]);
    Object(fields)
}

fn acknowledgement_json(one: &SiteAcknowledgement) -> Json {
    let mut fields = place_fields(&one.place);
    fields.extend([
        ("at_ns", Integer(one.at_ns.into())),
        ("until_ns", Integer(one.until_ns.into())),
        ("by", Text(one.by.clone())),
        ("note", Text(one.note.clone())),
        ("severity", one.severity.map_or(Null, |severity| integer(severity.into()))),
    ]);
    Object(fields)
}

fn delivery_json(delivery: &SiteDelivery) -> Json {
    Object(vec![
        ("number", integer(delivery.number)),
        ("contact", Text(delivery.contact.clone())),
        ("alert_id", Text(delivery.key.alert_id.clone())),
        ("transition", integer(delivery.key.transition)),
        ("reminder", integer(delivery.key.reminder.into())),
        ("fingerprint", Text(delivery.fingerprint.clone())),
        ("state", Text(delivery.state.name().to_owned())),
        ("at_ns", Integer(delivery.at_ns.into())),
    ])
}
