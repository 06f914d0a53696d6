//! Body of a form with a picture (`multipart/form-data`, RFC 7578).

use bytes::Bytes;
use net::signature::to_hex;
use serde_json::Value;

/// Name of the file with the picture.
pub(crate) const PICTURE_FILE: &str = "picture.png";

/// A form whose fields are added one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormBody {
    parts: Vec<FormPart>,
}

#[derive(Clone, Debug)]
struct FormPart {
    /// Headers with their line ends.
    head: String,
    content: Vec<u8>,
}

impl FormBody {
    /// Adds a field.
    pub(crate) fn add_text(&mut self, name: &'static str, text: &str) {
        self.add(name, "", text.as_bytes().to_vec());
    }

    /// Adds a field with a JSON value.
    pub(crate) fn add_json(&mut self, name: &'static str, value: &Value) {
        let head = "Content-Type: application/json\r\n";
        self.add(name, head, value.to_string().into_bytes());
    }

    /// Adds the file [`PICTURE_FILE`].
    pub(crate) fn add_picture(&mut self, name: &'static str, png: &[u8]) {
        let head = "Content-Type: image/png\r\n";
        let name = format!("{name}\"; filename=\"{PICTURE_FILE}");
        self.add(&name, head, png.to_vec());
    }

    fn add(&mut self, name: &str, more: &str, content: Vec<u8>) {
        let head = format!("Content-Disposition: form-data; name=\"{name}\"\r\n{more}\r\n");
        self.parts.push(FormPart { head, content });
    }

    /// Content type and body.
    pub(crate) fn finish(&self) -> (String, Bytes) {
        // No text can contain the digest of all texts.
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        self.parts.iter().for_each(|part| digest.update(&part.content));
        let boundary = format!("topdeck-{}", to_hex(&digest.finish().as_ref()[..16]));
        let mut body = Vec::new();
        for FormPart { head, content } in &self.parts {
            body.extend_from_slice(format!("--{boundary}\r\n{head}").as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        (format!("multipart/form-data; boundary={boundary}"), body.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_has_its_fields_in_their_order() {
        let mut form = FormBody::default();
        form.add_text("chat_id", "-1\r\n--x");
        form.add_json("payload_json", &json!({"a": "é"}));
        form.add_picture("photo", b"\x89PNG\r\n");
        let (kind, body) = form.finish();
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").expect("a form");
        let expected = [
            &b"--B\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n-1\r\n--x\r\n"[..],
            b"--B\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\
              Content-Type: application/json\r\n\r\n{\"a\":\"\xc3\xa9\"}\r\n",
            b"--B\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"picture.png\"\r\n\
              Content-Type: image/png\r\n\r\n\x89PNG\r\n\r\n--B--\r\n",
        ]
        .concat();
        let found = String::from_utf8_lossy(&body).replace(boundary, "B");
        assert_eq!(found, String::from_utf8_lossy(&expected));
        // A text that knows a boundary of before does not end a part.
        form.add_text("caption", boundary);
        assert_ne!(form.finish().0, kind);
    }
}
