//! Example of a load protocol: a small cache with the lines `set KEY BYTES` and `get KEY`. The
//! file has the URL scheme with a default port, a URL option with its check, the codec, errors, the
//! texts for `--help`, and a test.

use crate::{
    Codec, Completion, Failure, LoadProtocol, ProtocolRow, ProtocolTarget, RenderedRequest,
    RequestId, TargetUrl, UrlScheme,
};

/// The row of the table.
pub(crate) const ROW: ProtocolRow = ProtocolRow {
    schemes: &[UrlScheme {
        name: "cache",
        is_tls: false,
        default_port: Some(11_211),
        help: Some("cache"),
    }],
    has_credentials: false,
    body: None,
    argument: Some("a word of the command"),
    open: |url| Ok(ProtocolTarget::new(CacheProtocol::read(url)?, url.scheme)),
};

#[derive(Debug, PartialEq, thiserror::Error)]
enum CacheError {
    #[error("cannot use namespace {0:?}: it has white space; remove that")]
    Namespace(String),
    #[error("cannot send {0:?}: it is no command; use get KEY or set KEY BYTES")]
    Command(String),
}

/// One command at a time. A path is the prefix of all keys: `cache://host/namespace`.
#[derive(Debug, PartialEq)]
struct CacheProtocol {
    namespace: String,
}

impl CacheProtocol {
    fn read(url: &TargetUrl<'_>) -> Result<CacheProtocol, String> {
        let namespace = url.path.trim_start_matches('/').replace("%20", " ");
        match namespace.contains(' ') {
            true => Err(CacheError::Namespace(namespace).to_string()),
            false => Ok(CacheProtocol { namespace }),
        }
    }
}

impl LoadProtocol for CacheProtocol {
    fn codec(&self) -> Box<dyn Codec> {
        let (namespace, line) = (self.namespace.clone(), Vec::new());
        Box::new(CacheCodec { namespace, request_id: None, line, error_detail: None })
    }

    fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        request.refuse_headers()?;
        let words: Vec<&[u8]> = request.arguments.iter().map(Vec::as_slice).collect();
        match words[..] {
            [b"get", _] | [b"set", _, _] => Ok(()),
            _ => {
                let words = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
                Err(CacheError::Command(words).to_string())
            }
        }
    }
}

/// Codec of one connection. A response is a line; an error begins with `ERROR`.
struct CacheCodec {
    namespace: String,
    request_id: Option<RequestId>,
    line: Vec<u8>,
    error_detail: Option<String>,
}

impl Codec for CacheCodec {
    fn capacity(&self) -> usize {
        usize::from(self.request_id.is_none())
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        for (index, word) in request.arguments.iter().enumerate() {
            match index {
                0 => {}
                1 => out.extend_from_slice(format!(" {}", self.namespace).as_bytes()),
                _ => out.push(b' '),
            }
            out.extend_from_slice(word);
        }
        out.push(b'\n');
        self.request_id = Some(request_id);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        _out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            let failure = line.starts_with("ERROR").then_some(Failure::Status);
            self.error_detail = failure.map(|_| line);
            self.line.clear();
            let request_id = self.request_id.take().ok_or(Failure::Malformed)?;
            completions.push(Completion { request_id, failure });
        }
        Ok(())
    }

    fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.error_detail.take_if(|_| failure == Failure::Status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_line_with_the_namespace() {
        let protocol = CacheProtocol { namespace: "ns:".to_owned() };
        let arguments = vec![b"get".to_vec(), b"a".to_vec()];
        let request = RenderedRequest { arguments, ..RenderedRequest::default() };
        assert_eq!(protocol.check(&request), Ok(()));
        let mut bytes = Vec::new();
        protocol.codec().send(&request, RequestId::default(), &mut bytes);
        assert_eq!(bytes, b"get ns:a\n");
    }
}
