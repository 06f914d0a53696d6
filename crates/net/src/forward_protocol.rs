//! Constants of the forward protocol, shared by sender and receiver. `docs/formats/forward.md`
//! describes them.

/// Port of a server, unless its settings have another one.
pub const PORT: u16 = 7717;
/// Path of forward requests.
pub const PATH: &str = "/v1/batches";
/// Content type of forward requests.
pub const CONTENT_TYPE: &str = "application/vnd.topdeck.parcel";
/// Request header: name of the sender in the remote's ledger.
pub const AGENT_HEADER: &str = "topdeck-agent";
/// Prefix of the producer names of imports; the name of the file follows.
pub const IMPORT_PREFIX: &str = "import ";
/// Response header: highest durable sequence of the sender's journal.
pub const ACKED_SEQUENCE_HEADER: &str = "topdeck-accepted";
/// Response header: sequence of the rejected batch.
pub const REJECTED_SEQUENCE_HEADER: &str = "topdeck-refused";
/// Request header: the signer's public key (`signature.rs`), hexadecimal.
pub const KEY_HEADER: &str = "topdeck-key";
/// Request header: signature of the uncompressed request, hexadecimal.
pub const SIGNATURE_HEADER: &str = "topdeck-signature";
