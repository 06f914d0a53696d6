//! Constants of the forward protocol, shared by sender and receiver. `docs/formats/forward.md` says
//! what each means.

/// Where a site takes them.
pub const PATH: &str = "/v1/batches";
/// What they are.
pub const CONTENT_TYPE: &str = "application/vnd.topdeck.parcel";
/// Who sends: a name for the books.
pub const AGENT_PRODUCER: &str = "topdeck-agent";
/// In an answer: the highest sequence of the sender's journal that is durable.
pub const ACKED_SEQUENCE_HEADER: &str = "topdeck-accepted";
/// In an answer: the sequence of the batch that is not taken.
pub const REJECTED_SEQUENCE_HEADER: &str = "topdeck-refused";
/// Who signed: a public key (`signature.rs`) in hexadecimal digits.
pub const KEY_HEADER: &str = "topdeck-key";
/// The signature of the parcel, before it is packed, in hexadecimal digits.
pub const SIGNATURE_HEADER: &str = "topdeck-signature";
