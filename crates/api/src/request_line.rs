//! Request lines that hyper rejects, and its responses without a body.
//!
//! The crate `http` rejects a target with `"`, `<` or `>`, which the documentation of Prometheus
//! has in its examples (`curl -g '…?match[]={job="prometheus"}'`) and Go accepts. They are
//! percent-encoded before hyper parses the line. What hyper rejects itself (a malformed request
//! line, a target or a header that is too long) it answers without a body; every other error has a
//! JSON body, so these get one.

/// Status lines of hyper's own responses, and what they mean.
const BODILESS: [(&[u8], &str); 3] = [
    (
        b"HTTP/1.1 400 Bad Request\r\n",
        "cannot read the request: malformed HTTP; percent-encode the target, as with curl -G \
         --data-urlencode",
    ),
    (b"HTTP/1.1 414 URI Too Long\r\n", "cannot read the request: the target is too long; use POST"),
    (
        b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
        "cannot read the request: its header exceeds max_header_bytes",
    ),
];
const METHODS: [&[u8]; 6] = [b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS "];

/// Encoder of the request lines of a connection.
#[derive(Debug, Default)]
pub(crate) struct RequestLineEncoder {
    is_in_line: bool,
}

impl RequestLineEncoder {
    /// Bytes to pass on in place of some that were read; `None` if they stay as they are. `starts`:
    /// whether a request starts with them.
    pub(crate) fn encode(&mut self, bytes: &[u8], starts: bool) -> Option<Vec<u8>> {
        if starts {
            self.is_in_line = METHODS.iter().any(|method| bytes.starts_with(method));
        }
        if !self.is_in_line {
            return None;
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        self.is_in_line = end.is_none();
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        if !line.iter().any(|byte| b"\"<>".contains(byte)) {
            return None;
        }
        let mut encoded = Vec::with_capacity(bytes.len() + 32);
        for &byte in line {
            match byte {
                b'"' => encoded.extend(b"%22"),
                b'<' => encoded.extend(b"%3C"),
                b'>' => encoded.extend(b"%3E"),
                byte => encoded.push(byte),
            }
        }
        encoded.extend(rest);
        Some(encoded)
    }
}

/// A response of hyper without a body, with one; `None` for any other bytes.
pub(crate) fn with_json_body(head: &[u8]) -> Option<Vec<u8>> {
    let (status, message) = BODILESS.iter().find(|(status, _)| head.starts_with(status))?;
    let fields = head.strip_suffix(b"\r\n\r\n")?.get(status.len()..)?;
    let fields = std::str::from_utf8(fields).ok()?;
    let is_length = |field: &str| field.eq_ignore_ascii_case("content-length: 0");
    fields.split("\r\n").find(|field| is_length(field))?;
    let body = serde_json::json!({ "error": message }).to_string() + "\n";
    let mut response = status.to_vec();
    for field in fields.split("\r\n").filter(|field| !is_length(field)) {
        response.extend(format!("{field}\r\n").bytes());
    }
    let length = body.len();
    response.extend(
        format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").bytes(),
    );
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reads: &[&str], expected: &str) {
        let mut encoder = RequestLineEncoder::default();
        let mut all = Vec::new();
        for (at, read) in reads.iter().enumerate() {
            let encoded = encoder.encode(read.as_bytes(), at == 0);
            all.extend(encoded.unwrap_or_else(|| read.as_bytes().to_vec()));
        }
        assert_eq!(String::from_utf8(all).unwrap(), expected);
    }

    #[test]
    fn quotes_of_the_request_line_are_encoded() {
        check(
            &["GET /q?match[]={a=~\"x\"} HTTP/1.1\r\nIf-Match: \"e\"\r\n\r\n"],
            "GET /q?match[]={a=~%22x%22} HTTP/1.1\r\nIf-Match: \"e\"\r\n\r\n",
        );
        check(
            &["GET /q?\"", "\"<> HTTP/1.1\r", "\n\"body\""],
            "GET /q?%22%22%3C%3E HTTP/1.1\r\n\"body\"",
        );
        check(&["{\"a\": 1}\n"], "{\"a\": 1}\n");
        check(&["POST / HTTP/1.1\r\n\r\n\"a\""], "POST / HTTP/1.1\r\n\r\n\"a\"");
    }

    #[test]
    fn response_without_a_body_gets_one() {
        let head = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let text = String::from_utf8(with_json_body(head).unwrap()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(body.starts_with("{\"error\":\"cannot read the request:"), "{text}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{text}");
        assert!(head.contains("connection: close\r\n"), "{text}");
        let with_body = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno";
        assert_eq!(with_json_body(with_body), None);
        assert_eq!(with_json_body(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), None);
    }
}
