//! HTTP/1.1, one request at a time on a persistent connection.

use protocol::http1::{Http1Request, Http1Response, ResponseParser};

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::load_protocol::{LoadProtocol, ProtocolRow, ProtocolTarget, UrlScheme};
use crate::rendered_request::RenderedRequest;

/// The row of the table.
pub(super) const ROW: ProtocolRow = ProtocolRow {
    schemes: &[
        UrlScheme {
            name: "http",
            is_tls: false,
            default_port: Some(80),
            help: Some("http://HOST:PORT/PATH"),
        },
        UrlScheme { name: "https", is_tls: true, default_port: Some(443), help: Some("https") },
    ],
    has_credentials: false,
    body: None,
    argument: None,
    open: |url| {
        let protocol = Http1Protocol { authority: url.authority.to_owned() };
        let path = url.path.clone();
        Ok(ProtocolTarget { path, ..ProtocolTarget::new(protocol, url.scheme) })
    },
};

/// One request at a time.
#[derive(Clone, Debug)]
pub(crate) struct Http1Protocol {
    /// Host and port as in the URL.
    pub(crate) authority: String,
}

impl LoadProtocol for Http1Protocol {
    fn codec(&self) -> Box<dyn Codec> {
        Box::new(Http1::new(&self.authority))
    }

    fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        request.refuse_arguments()?;
        message(request).check()
    }

    fn alpn(&self) -> Option<&'static [u8]> {
        Some(b"http/1.1")
    }
}

fn message(request: &RenderedRequest) -> Http1Request<'_> {
    let RenderedRequest { method, path, headers, body, .. } = request;
    Http1Request { method, path, headers, body }
}

/// Codec of one connection.
pub(crate) struct Http1 {
    authority: String,
    request_id: Option<RequestId>,
    /// A response to HEAD has no body.
    is_head: bool,
    parser: ResponseParser,
    /// Status line of the last error response.
    error_detail: Option<String>,
    is_last: bool,
}

impl Http1 {
    /// Codec for this host and port.
    pub(crate) fn new(authority: &str) -> Http1 {
        Http1 {
            authority: authority.to_owned(),
            request_id: None,
            is_head: false,
            parser: ResponseParser::default(),
            error_detail: None,
            is_last: false,
        }
    }

    fn end(&mut self, response: &Http1Response, completions: &mut Vec<Completion>) {
        self.is_last |= response.is_last;
        let failure = response.is_error().then_some(Failure::Status);
        if failure.is_some() {
            self.error_detail = Some(format!("{} {}", response.status, response.reason));
        }
        completions
            .extend(self.request_id.take().map(|request_id| Completion { request_id, failure }));
    }
}

impl Codec for Http1 {
    fn capacity(&self) -> usize {
        usize::from(self.request_id.is_none() && !self.is_last)
    }

    fn is_ending(&self) -> bool {
        self.is_last
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        message(request).encode(&self.authority, out);
        self.is_head = request.method == "HEAD";
        self.request_id = Some(request_id);
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        _out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if self.request_id.is_none() {
                // An unsolicited response.
                return Err(Failure::Malformed);
            }
            let Some(response) = self.parser.read(&mut bytes, self.is_head)? else { return Ok(()) };
            self.end(&response, completions);
        }
        Ok(())
    }

    fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.error_detail.take_if(|_| failure == Failure::Status)
    }

    fn close(&mut self, completions: &mut Vec<Completion>) {
        if let Some(response) = self.parser.close() {
            self.end(&response, completions);
        }
    }
}

#[cfg(test)]
mod tests;
