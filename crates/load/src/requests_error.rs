//! Errors of requests files.

/// Invalid requests file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestsError {
    /// Invalid TOML or schema.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// No requests.
    #[error("no requests; write at least one [[request]]")]
    Empty,
    /// Weight out of range.
    #[error(
        "request {name:?}: weight {weight} is out of range; weights must be above 0, and their \
         sum below 1e300"
    )]
    Weight {
        /// Name of the request.
        name: String,
        /// The weight.
        weight: f64,
    },
    /// Undeclared variable.
    #[error(
        "undeclared variable {{{name}}}; declare {name} in [variables], or double a literal brace"
    )]
    UnknownVariable {
        /// Name of the variable.
        name: String,
    },
    /// Unbalanced brace.
    #[error("unbalanced brace in {text:?}; double a literal brace")]
    Brace {
        /// The template.
        text: String,
    },
    /// Invalid hexadecimal body.
    #[error("invalid body-hex {text:?}; expected two digits of 0-9 and a-f per byte")]
    Hex {
        /// The text.
        text: String,
    },
    /// More than one body.
    #[error("request {name:?} has more than one of body, sql, body-file and body-hex; keep one")]
    MultipleBodies {
        /// Name of the request.
        name: String,
    },
    /// Variable without values.
    #[error("variable {name} has no values; write at least one, or a range with from <= to")]
    NoValue {
        /// Name of the variable.
        name: String,
    },
    /// The protocol cannot represent the request.
    #[error("request {name:?}: {cause}{with}")]
    NotRepresentable {
        /// Name of the request.
        name: String,
        /// Cause.
        cause: String,
        /// Values of its variables that cause it; empty if it has none.
        with: String,
    },
    /// A command with fields of a server request.
    #[error(
        "request {name:?} has a command, which allows only name, weight and one of body, \
         body-file and body-hex (its standard input)"
    )]
    Command {
        /// Name of the request.
        name: String,
    },
    /// Unreadable file.
    #[error("cannot read {path}: {error}")]
    File {
        /// Path.
        path: String,
        /// Cause.
        error: std::io::Error,
    },
}
