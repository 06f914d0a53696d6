//! Web UI assets embedded in the binary. Nothing of it comes from elsewhere.
//!
//! A program that was built without it has no files here; `make` builds both.
#![forbid(unsafe_code)]

use std::io::Read as _;

use flate2::read::GzDecoder;

/// File of the web UI.
#[derive(Debug)]
pub struct Asset {
    /// Where browsers ask for it: `/index.html`, `/assets/…`.
    pub path: &'static str,
    /// What browsers take it for.
    pub content_type: &'static str,
    /// Another one with other bytes.
    pub etag: &'static str,
    /// Its bytes, packed by gzip.
    pub gzip_bytes: &'static [u8],
}

const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// What is to be shown if there are no files.
pub const MISSING_TEXT: &str = "This topdeck was built without its page: `make` builds both (it needs Node.js).\n\
     The same answers are at /v1/openapi.json.\n";

/// All files.
pub fn assets() -> &'static [Asset] {
    ASSETS
}

/// The file at a path; at `/` the page itself.
pub fn find_asset(path: &str) -> Option<&'static Asset> {
    let path = if path == "/" { "/index.html" } else { path };
    ASSETS.iter().find(|file| file.path == path)
}

impl Asset {
    /// Its bytes.
    pub fn decompress(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.gzip_bytes).read_to_end(&mut bytes).expect("BUG: packed by the build");
        bytes
    }

    /// Whether its name changes with its bytes, so that browsers need not ask again.
    pub fn is_content_addressed(&self) -> bool {
        self.path.starts_with("/assets/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes over the wire when somebody opens the page for the first time.
    const GZIP_BYTES_MAX: usize = 120 << 10;

    #[test]
    fn the_page_is_small_and_whole() {
        let packed: usize = assets().iter().map(|file| file.gzip_bytes.len()).sum();
        assert!(packed <= GZIP_BYTES_MAX, "{packed} bytes");
        let Some(page) = find_asset("/") else { return };
        let text = String::from_utf8(page.decompress()).unwrap();
        // Beside itself: it may stand below a path of a proxy.
        assert!(!text.contains("\"/"), "{text}");
        for path in text.split('"').filter_map(|quoted| quoted.strip_prefix('.')) {
            assert!(find_asset(path).is_some(), "{path}");
        }
        assert!(!text.contains("http://") && !text.contains("https://"), "{text}");
    }
}
