//! What `/v1/status` says of sites and of this host.

use api::json::Json::{self, Integer, List, Null, Object, Text};
use api::json::integer;
use forward::{Orphan, Status, Watch};

/// Each site that gets what is taken here.
pub(crate) fn sites(watch: &Watch) -> Json {
    List(watch.status().iter().map(site).collect())
}

fn site(status: &Status) -> Json {
    let time = |time: Option<i64>| time.map_or(Null, |time| Integer(time.into()));
    let trouble = |(at, why): &(i64, String)| {
        Object(vec![("at_ns", Integer((*at).into())), ("why", Text(why.clone()))])
    };
    Object(vec![
        ("name", Text(status.name.clone())),
        ("url", Text(status.url.clone())),
        ("connected_ns", time(status.connected)),
        ("position", integer(status.position)),
        ("lag", integer(status.lag)),
        ("oldest_ns", time(status.oldest)),
        ("acknowledged_ns", time(status.acknowledged)),
        ("trouble", status.trouble.as_ref().map_or(Null, trouble)),
        ("sent_bytes", integer(status.sent_bytes)),
        ("records", integer(status.records)),
        ("missing", integer(status.missing)),
        ("set_aside", integer(status.set_aside)),
        ("note", status.note.clone().map_or(Null, Text)),
    ])
}

/// Sites that are in the settings no more, and for which the journal keeps records.
pub(crate) fn former_sites(watch: &Watch) -> Json {
    // What cannot be read now is in the journal's own part, which says why.
    List(watch.orphans().unwrap_or_default().iter().map(former_site).collect())
}

fn former_site(orphan: &Orphan) -> Json {
    Object(vec![
        ("name", Text(orphan.name.clone())),
        ("position", integer(orphan.position)),
        ("moved_ns", Integer(orphan.moved.into())),
        ("lag", integer(orphan.lag)),
    ])
}

/// What is not measured of this host, and why.
pub(crate) fn notes(notes: &[String]) -> Json {
    List(notes.iter().cloned().map(Text).collect())
}
