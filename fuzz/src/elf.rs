//! A program or library whose functions a profile names.

use pciescope_hw::perf::elf::Image;

pub fn run(data: &[u8]) {
    if let Ok(image) = Image::parse(data) {
        for offset in [0, 1, 0x1000, u64::MAX / 2, u64::MAX] {
            let _ = image.name(offset);
        }
    }
}
