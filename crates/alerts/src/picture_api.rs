//! `GET /v1/alert-pictures/{id}`: pictures of messages, for receivers that fetch them.
//!
//! They have no token: the link that is in the message is signed, for one picture, and expires. All
//! errors are the same, so that nobody learns what was wrong, or which pictures there are.

use notify::PictureLinks;
use role::{Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec};

pub(crate) const PICTURE: RouteSpec = RouteSpec {
    name: "alert-picture",
    path: "/v1/alert-pictures/{id}",
    about: "Picture of a message of an alert, by the signed link of the message.",
    parameters: &[
        Parameter::text("id", "id of the picture").required(),
        Parameter::integer("expires", "end of the link, in seconds since the Unix epoch"),
        Parameter::text("signature", "signature of path and end, in hexadecimal digits"),
    ],
    format: RouteFormat::SignedPicture,
};

/// The PNG file of a link.
pub(crate) fn picture(
    links: &PictureLinks,
    now_ns: i64,
    query: &RouteQuery,
) -> Result<Vec<u8>, RouteError> {
    let value = |name| query.get(name).unwrap_or_default();
    let found = links.read(value("id"), value("expires"), value("signature"), now_ns);
    found.ok_or_else(|| RouteError::NotFound("no picture, or its link has expired".to_owned()))
}
