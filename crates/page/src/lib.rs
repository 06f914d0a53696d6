//! Web UI assets embedded in the binary. The UI loads nothing from other hosts.
//!
//! A binary that was built without `web/dist` has no assets: that is a build for tests, or one with
//! `TOPDECK_WITHOUT_PAGE=1`.
#![forbid(unsafe_code)]

#[cfg(test)]
mod page_requirement;

use std::io::Read as _;

use flate2::read::GzDecoder;

/// File of the web UI.
#[derive(Debug)]
pub struct Asset {
    /// URL path: `/index.html`, `/assets/…`.
    pub path: &'static str,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// Entity tag, which depends on the bytes.
    pub etag: &'static str,
    /// The contents, compressed with gzip.
    pub gzip_bytes: &'static [u8],
}

const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Whether the binary contains the web UI.
pub const IS_EMBEDDED: bool = !ASSETS.is_empty();

/// Response to `/` if there are no assets.
pub const MISSING_TEXT: &str = "\
This topdeck was built without its web UI. Everything else works: ingest, the API (described at
/v1/openapi.json), the Prometheus API for Grafana, and the commands of `topdeck --help`.

To get the page, install Node.js 20.19 or newer with npm, and run in topdeck's source directory

    make run

or, for an installed binary,

    cargo xtask page
    cargo install --locked --path crates/topdeck
";

/// All assets.
pub fn assets() -> &'static [Asset] {
    ASSETS
}

/// The asset at a path; `/` is `/index.html`.
pub fn find_asset(path: &str) -> Option<&'static Asset> {
    let path = if path == "/" { "/index.html" } else { path };
    ASSETS.iter().find(|file| file.path == path)
}

impl Asset {
    /// The uncompressed contents.
    pub fn decompress(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.gzip_bytes).read_to_end(&mut bytes).expect("BUG: packed by the build");
        bytes
    }

    /// Whether the path contains a hash of the contents, so that browsers may cache it for ever.
    pub fn is_content_addressed(&self) -> bool {
        self.path.starts_with("/assets/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum transfer size of the first page view, in bytes.
    const GZIP_BYTES_MAX: usize = 128 << 10;

    #[test]
    fn assets_are_small_and_complete() {
        let packed: usize = assets().iter().map(|file| file.gzip_bytes.len()).sum();
        assert!(packed <= GZIP_BYTES_MAX, "{packed} bytes");
        let Some(page) = find_asset("/") else { return };
        let text = String::from_utf8(page.decompress()).unwrap();
        // Assets are relative: a proxy may serve the page below a path.
        assert!(!text.contains("\"/"), "{text}");
        for path in text.split('"').filter_map(|quoted| quoted.strip_prefix('.')) {
            assert!(find_asset(path).is_some(), "{path}");
        }
        assert!(!text.contains("http://") && !text.contains("https://"), "{text}");
    }
}
