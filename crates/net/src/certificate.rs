//! Names in a certificate (RFC 5280, DER of X.690): the subject's common name and the textual
//! alternative names (DNS, mail, URI), and the expiry.
//!
//! Callers pass certificates whose signature was verified. Malformed parts yield no names.

/// Object identifier 2.5.4.3, common name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Object identifier 2.5.29.17, subject alternative names.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_TEXT: u8 = 0x0c;
const PRINTABLE_TEXT: u8 = 0x13;
const IA5_TEXT: u8 = 0x16;
/// Tags of times with two-digit and four-digit years.
const UTC_TIME: u8 = 0x17;
const GENERAL_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Context tags of a certificate: version, extensions.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Context tags of textual alternative names: mail, DNS, URI.
const TEXT_NAMES: [u8; 3] = [0x81, 0x82, 0x86];

/// The names in a certificate, the common name first.
pub fn names(certificate: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    // Names before a malformed part are kept.
    let _ = read_names(certificate, &mut names);
    names
}

/// Expiry of a certificate, in seconds since the Unix epoch.
pub(crate) fn expiry(certificate: &[u8]) -> Option<i64> {
    let mut fields = fields(certificate)?;
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields.next()?;
    }
    let mut validity = Der(fields.expect(SEQUENCE)?);
    validity.next()?;
    let (tag, text) = validity.next()?;
    parse_time(tag, std::str::from_utf8(text).ok()?)
}

/// The subject's public key with its algorithm (SubjectPublicKeyInfo), as encoded.
pub(crate) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let mut fields = fields(certificate)?;
    // Serial number, signature algorithm, issuer, validity, subject.
    for _ in 0..5 {
        fields.next()?;
    }
    let encoded = fields.0;
    fields.expect(SEQUENCE)?;
    Some(&encoded[..encoded.len() - fields.0.len()])
}

/// RFC 5280, 4.1.2.5: always with seconds, always in UTC.
fn parse_time(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = digits[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERAL_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let two = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days_since_epoch(year, month, day) * 86_400 + two(4)? * 3600 + two(6)? * 60 + two(8)?)
}

/// Days since the Unix epoch:
/// <https://howardhinnant.github.io/date_algorithms.html#days_from_civil>
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The signed fields after the version.
fn fields(certificate: &[u8]) -> Option<Der<'_>> {
    let mut certificate_der = Der(Der(certificate).expect(SEQUENCE)?);
    let mut fields = Der(certificate_der.expect(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    Some(fields)
}

fn read_names(certificate: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut fields = fields(certificate)?;
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        fields.next()?;
    }
    let mut subject = Der(fields.expect(SEQUENCE)?);
    while let Some((SET, attributes)) = subject.next() {
        let mut attribute = Der(Der(attributes).expect(SEQUENCE)?);
        let is_common_name = attribute.expect(OBJECT_IDENTIFIER)? == COMMON_NAME;
        let (tag, value) = attribute.next()?;
        if is_common_name && [UTF8_TEXT, PRINTABLE_TEXT, IA5_TEXT].contains(&tag) {
            push_name(names, value);
        }
    }
    while let Some((tag, value)) = fields.next() {
        if tag == EXTENSIONS {
            read_extensions(value, names)?;
        }
    }
    Some(())
}

fn read_extensions(value: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut extensions = Der(Der(value).expect(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = extensions.next() {
        let mut extension = Der(extension);
        let is_names = extension.expect(OBJECT_IDENTIFIER)? == ALTERNATIVE_NAMES;
        if extension.0.first() == Some(&BOOLEAN) {
            extension.next()?;
        }
        let value = extension.expect(OCTET_STRING)?;
        if !is_names {
            continue;
        }
        let mut list = Der(Der(value).expect(SEQUENCE)?);
        while let Some((tag, name)) = list.next() {
            if TEXT_NAMES.contains(&tag) {
                push_name(names, name);
            }
        }
    }
    Some(())
}

fn push_name(names: &mut Vec<String>, bytes: &[u8]) {
    if let Ok(name) = std::str::from_utf8(bytes)
        && !names.iter().any(|known| known == name)
    {
        names.push(name.to_owned());
    }
}

/// DER element iterator.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Tag and contents of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, short], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            // Three length bytes are enough for every certificate.
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
    use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData as _};

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

    #[track_caller]
    fn check_time(tag: u8, text: &str, expected: Option<i64>) {
        assert_eq!(parse_time(tag, text), expected);
    }

    #[test]
    fn times_are_read() {
        check_time(UTC_TIME, "700101000000Z", Some(0));
        check_time(UTC_TIME, "240229120000Z", Some(1_709_208_000));
        check_time(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check_time(UTC_TIME, "500101000000Z", Some(-631_152_000));
        check_time(GENERAL_TIME, "20500101000000Z", Some(2_524_608_000));
        check_time(GENERAL_TIME, "99991231235959Z", Some(253_402_300_799));
        check_time(GENERAL_TIME, "20501301000000Z", None);
        check_time(UTC_TIME, "700101000000", None);
        check_time(UTC_TIME, "70010100000éZ", None);
        check_time(UTC_TIME, "20500101000000Z", None);
    }

    #[test]
    fn certificate_expiry_is_read() {
        let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2044, 3, 1);
        let whole = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert_eq!(expiry(&whole), Some(2_340_403_200));
        for end in 0..whole.len() {
            assert_eq!(expiry(&whole[..end]), None);
        }
    }

    #[test]
    fn public_key_is_that_of_the_key_pair() {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        let whole = params.self_signed(&key).unwrap().der().to_vec();
        assert_eq!(public_key(&whole), Some(&key.subject_public_key_info()[..]));
        for end in 0..whole.len() {
            assert_eq!(public_key(&whole[..end]), None);
        }
    }

    #[test]
    fn damaged_certificate_yields_only_real_names() {
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
