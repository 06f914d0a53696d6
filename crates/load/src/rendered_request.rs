//! A request ready to send.

/// A request with all variables replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedRequest {
    /// Index of its [`crate::RequestTemplate`].
    pub index: usize,
    /// HTTP method.
    pub method: String,
    /// HTTP path with query.
    pub path: String,
    /// HTTP headers.
    pub headers: Vec<(String, String)>,
    /// Body, SQL, or standard input.
    pub body: Vec<u8>,
    /// PostgreSQL parameters or Redis words.
    pub arguments: Vec<Vec<u8>>,
    /// Program and arguments.
    pub command: Vec<Vec<u8>>,
}

impl RenderedRequest {
    /// An error if there are arguments, for a protocol without them.
    pub(crate) fn refuse_arguments(&self) -> Result<(), String> {
        refuse(self.arguments.is_empty(), "arguments")
    }

    /// An error if there are headers, for a protocol without them.
    pub fn refuse_headers(&self) -> Result<(), String> {
        refuse(self.headers.is_empty(), "headers")
    }

    /// Checks that it can be the arguments of a process.
    pub(crate) fn check_command(&self) -> Result<(), String> {
        if self.command.iter().any(|word| word.contains(&0)) {
            return Err("an argument contains a NUL byte".to_owned());
        }
        self.refuse_arguments()?;
        self.refuse_headers()
    }
}

fn refuse(is_empty: bool, what: &str) -> Result<(), String> {
    match is_empty {
        true => Ok(()),
        false => Err(format!("the protocol does not support {what}")),
    }
}
