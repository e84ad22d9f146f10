//! A device that is read again and again from its beginning.

use std::time::{Duration, Instant};

use pciescope_hw::daq::Daq;

use super::{Error, IsStopped, Moved};

/// Fills `into` from the device's beginning until `duration` is over or the run shall end; a read that has begun is ended.
///
/// # Errors
/// [`Error::Device`].
pub fn run(daq: &mut dyn Daq, into: &mut [u8], duration: Duration, is_stopped: IsStopped) -> Result<Moved, Error> {
    let (begin, mut read_bytes) = (Instant::now(), 0);
    while begin.elapsed() < duration && !is_stopped() {
        daq.read(0, into)?;
        read_bytes += into.len() as u64;
    }
    Ok(Moved { read_bytes, written_bytes: 0, ns: begin.elapsed().as_nanos() as u64 })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pciescope_hw::Root;
    use pciescope_hw::memory::Buffer;

    use super::*;

    #[test]
    fn whole_reads_are_counted_and_a_device_that_fails_is_named() {
        let open = |path: &str| pciescope_hw::daq::open(&Root::at("/"), Path::new(path), &Default::default()).unwrap();
        let mut buffer = Buffer::on_node(4096, None).unwrap();
        let mut read =
            |path: &str| run(&mut *open(path), &mut buffer.bytes_mut()[..4096], Duration::from_millis(10), &|| false);
        let moved = read("fake:digitizer?rate=0").unwrap();
        assert!(moved.read_bytes >= 4096 && moved.read_bytes % 4096 == 0, "{moved:?}");
        assert!(moved.ns >= 10_000_000 && moved.written_bytes == 0, "{moved:?}");
        let failed = read("fake:digitizer?gone-after=1").unwrap_err();
        assert!(matches!(failed, Error::Device(_)) && failed.to_string().contains("gone-after"), "{failed}");
    }
}
