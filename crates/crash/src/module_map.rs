//! Files mapped into a process, and what is known of an address from them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::core_dump::FileMapping;
use crate::elf_image::ElfImage;

/// Files that are opened for one crash.
const IMAGES_MAX: usize = 128;

/// Opens the file of a mapping.
type OpenImage<'a> = Box<dyn FnMut(&FileMapping) -> Option<ElfImage> + 'a>;

/// The files of a process, opened when an address in them is first asked for.
pub struct ModuleMap<'a> {
    mappings: Vec<FileMapping>,
    open: OpenImage<'a>,
    /// By path; `None` if it cannot be read.
    images: BTreeMap<String, Option<ElfImage>>,
}

impl<'a> ModuleMap<'a> {
    /// Mappings of a process, and how their files are opened.
    pub fn new(
        mut mappings: Vec<FileMapping>,
        open: impl FnMut(&FileMapping) -> Option<ElfImage> + 'a,
    ) -> ModuleMap<'a> {
        mappings.sort_unstable_by_key(|mapping| mapping.range.start);
        ModuleMap { mappings, open: Box::new(open), images: BTreeMap::new() }
    }

    /// The mapping that has code at an address.
    pub(crate) fn code_at(&self, address: u64) -> Option<&FileMapping> {
        let after = self.mappings.partition_point(|mapping| mapping.range.start <= address);
        let mapping = self.mappings[..after].last()?;
        (mapping.range.contains(&address) && mapping.is_executable).then_some(mapping)
    }

    /// The file at an address, and the address in the file's own numbering.
    pub(crate) fn image_at(&mut self, address: u64) -> Option<(&ElfImage, u64)> {
        let mapping = self.code_at(address)?.clone();
        if !self.images.contains_key(&mapping.path) {
            let image = if self.images.len() < IMAGES_MAX { (self.open)(&mapping) } else { None };
            self.images.insert(mapping.path.clone(), image);
        }
        let image = self.images.get(&mapping.path)?.as_ref()?;
        let offset = (address - mapping.range.start).checked_add(mapping.offset)?;
        Some((image, image.address_of(offset)?))
    }

    /// Names of the functions at addresses, per file at once.
    pub(crate) fn function_names(&mut self, addresses: &[u64]) -> Vec<Option<String>> {
        let mut names = vec![None; addresses.len()];
        let mut by_path: BTreeMap<String, Vec<(usize, u64)>> = BTreeMap::new();
        for (index, &address) in addresses.iter().enumerate() {
            let path = self.code_at(address).map(|mapping| mapping.path.clone());
            let own = self.image_at(address).map(|(_, own)| own);
            if let Some((path, own)) = path.zip(own) {
                by_path.entry(path).or_default().push((index, own));
            }
        }
        for (path, wanted) in by_path {
            let Some(Some(image)) = self.images.get(&path) else { continue };
            let own: Vec<u64> = wanted.iter().map(|wanted| wanted.1).collect();
            for ((index, _), name) in wanted.into_iter().zip(image.function_names(&own)) {
                names[index] = name;
            }
        }
        names
    }

    /// Build ID of a file; empty if it has none or was not read.
    pub fn build_id(&mut self, path: &str) -> String {
        let mapping = self.mappings.iter().find(|it| it.path == path && it.is_executable);
        let start = mapping.map(|mapping| mapping.range.start);
        let image = start.and_then(|start| self.image_at(start));
        image.map_or_else(String::new, |(image, _)| image.build_id.clone())
    }

    /// Path and addresses of each file with code.
    pub(crate) fn executable_ranges(&self) -> impl Iterator<Item = (&str, &Range<u64>)> {
        let code = self.mappings.iter().filter(|mapping| mapping.is_executable);
        code.map(|mapping| (mapping.path.as_str(), &mapping.range))
    }
}
