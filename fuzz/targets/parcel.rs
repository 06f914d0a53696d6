#![no_main]
//! Any bytes are a parcel or refused; below the last checksum too, which would keep a fuzzer out.

use libfuzzer_sys::fuzz_target;
use model::{Parcel, ParcelWriter};

fuzz_target!(|bytes: &[u8]| {
    let _ = Parcel::read(bytes);
    let mut sealed = bytes.to_owned();
    sealed.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    if let Ok(parcel) = Parcel::read(&sealed) {
        let mut writer = ParcelWriter::new(parcel.journal);
        parcel.entries.iter().for_each(|&(sequence, batch)| writer.push(sequence, batch));
        assert_eq!(writer.finish(), sealed);
    }
});
