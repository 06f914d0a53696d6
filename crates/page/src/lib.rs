//! The page of `topdeck serve`: what `web/` is built into, packed into the program. Nothing of it comes from elsewhere.
//!
//! A program that was built without it has no files here; `make` builds both.
#![forbid(unsafe_code)]

use std::io::Read as _;

use flate2::read::GzDecoder;

/// A file of the page.
#[derive(Debug)]
pub struct File {
    /// Where browsers ask for it: `/index.html`, `/assets/…`.
    pub path: &'static str,
    /// What browsers take it for.
    pub kind: &'static str,
    /// Another one with other bytes.
    pub tag: &'static str,
    /// Its bytes, packed by gzip.
    pub packed: &'static [u8],
}

const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// What is to be shown if there are no files.
pub const MISSING: &str = "This topdeck was built without its page: `make` builds both (it needs Node.js).\n\
     The same answers are at /v1/openapi.json.\n";

/// All files.
pub fn files() -> &'static [File] {
    FILES
}

/// The file at a path; at `/` the page itself.
pub fn file(path: &str) -> Option<&'static File> {
    let path = if path == "/" { "/index.html" } else { path };
    FILES.iter().find(|file| file.path == path)
}

impl File {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.packed).read_to_end(&mut bytes).expect("BUG: packed by the build");
        bytes
    }

    /// Whether its name changes with its bytes, so that browsers need not ask again.
    pub fn is_named_by_content(&self) -> bool {
        self.path.starts_with("/assets/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes over the wire when somebody opens the page for the first time.
    const PACKED_BYTES_MAX: usize = 120 << 10;

    #[test]
    fn the_page_is_small_and_whole() {
        let packed: usize = files().iter().map(|file| file.packed.len()).sum();
        assert!(packed <= PACKED_BYTES_MAX, "{packed} bytes");
        let Some(page) = file("/") else { return };
        let text = String::from_utf8(page.bytes()).unwrap();
        // Beside itself: it may stand below a path of a proxy.
        assert!(!text.contains("\"/"), "{text}");
        for path in text.split('"').filter_map(|quoted| quoted.strip_prefix('.')) {
            assert!(file(path).is_some(), "{path}");
        }
        assert!(!text.contains("http://") && !text.contains("https://"), "{text}");
    }
}
