//! The names in a certificate (RFC 5280, in DER as X.690 has it): the common name of the subject, and the alternative
//! names that are texts (DNS names, mail and web addresses).
//!
//! It is asked of certificates whose signature has been verified, but what is not as it should be yields no name.

/// Object identifier 2.5.4.3, common name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Object identifier 2.5.29.17, alternative names of the subject.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const IDENTIFIER: u8 = 0x06;
const UTF8_TEXT: u8 = 0x0c;
const PRINTABLE_TEXT: u8 = 0x13;
const IA5_TEXT: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The context tags of a certificate: its version, and its extensions.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The context tags of alternative names that are texts: mail, DNS, web address.
const TEXT_NAMES: [u8; 3] = [0x81, 0x82, 0x86];

/// The names in a certificate, the common name first.
pub fn names(certificate: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    // What was found before something unexpected is kept.
    let _ = read(certificate, &mut names);
    names
}

fn read(certificate: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut whole = Der(Der(certificate).expect(SEQUENCE)?);
    let mut fields = Der(whole.expect(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        fields.next()?;
    }
    let mut subject = Der(fields.expect(SEQUENCE)?);
    while let Some((SET, attributes)) = subject.next() {
        let mut attribute = Der(Der(attributes).expect(SEQUENCE)?);
        let is_common_name = attribute.expect(IDENTIFIER)? == COMMON_NAME;
        let (tag, value) = attribute.next()?;
        if is_common_name && [UTF8_TEXT, PRINTABLE_TEXT, IA5_TEXT].contains(&tag) {
            push(names, value);
        }
    }
    while let Some((tag, value)) = fields.next() {
        if tag == EXTENSIONS {
            extensions(value, names)?;
        }
    }
    Some(())
}

fn extensions(value: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut extensions = Der(Der(value).expect(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = extensions.next() {
        let mut extension = Der(extension);
        let is_names = extension.expect(IDENTIFIER)? == ALTERNATIVE_NAMES;
        if extension.0.first() == Some(&BOOLEAN) {
            extension.next()?;
        }
        let value = extension.expect(OCTETS)?;
        if !is_names {
            continue;
        }
        let mut list = Der(Der(value).expect(SEQUENCE)?);
        while let Some((tag, name)) = list.next() {
            if TEXT_NAMES.contains(&tag) {
                push(names, name);
            }
        }
    }
    Some(())
}

fn push(names: &mut Vec<String>, bytes: &[u8]) {
    if let Ok(name) = std::str::from_utf8(bytes)
        && !names.iter().any(|known| known == name)
    {
        names.push(name.to_owned());
    }
}

/// Elements, one after another.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element's tag and contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, short], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            // No certificate is longer than three bytes of length can say.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
                (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|found| found.0 == tag).map(|found| found.1)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(common: Option<&str>, alternative: &[&str]) -> Vec<u8> {
        let names: Vec<String> = alternative.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "an organisation");
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_are_found() {
        assert_eq!(names(&certificate(Some("edge 1"), &[])), ["edge 1"]);
        assert_eq!(
            names(&certificate(None, &["a.example", "b.example"])),
            ["a.example", "b.example"]
        );
        assert_eq!(names(&certificate(Some("a"), &["a", "10.0.0.1"])), ["a"]);
        assert_eq!(names(&certificate(None, &[])), [""; 0]);
    }

    #[test]
    fn damage_yields_no_more_than_a_name_that_is_there() {
        let whole = certificate(Some("edge"), &["a.example"]);
        for end in 0..whole.len() {
            assert!(names(&whole[..end]).is_empty());
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            assert!(names(&damaged).len() <= 2);
        }
    }
}
