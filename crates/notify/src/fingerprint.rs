//! Fingerprint of a label set, as Prometheus and Alertmanager compute it.

/// FNV-1a of 64 bits over the labels, which are sorted by name, each name and value followed by the
/// byte 255 (prometheus/common, `model/signature.go`); 16 hexadecimal digits.
pub fn label_fingerprint<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let texts = labels.flat_map(|(name, value)| [name, value]);
    let bytes = texts.flat_map(|text| text.bytes().chain([255]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_labels_have_the_fingerprint_of_prometheus() {
        assert_eq!(label_fingerprint(std::iter::empty()), "cbf29ce484222325");
    }
}
