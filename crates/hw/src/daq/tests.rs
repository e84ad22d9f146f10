//! Every way of access against plain files and the devices that every machine has.

use std::fs::File;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;

const FILE_WAYS: [Access; 4] = [Access::Read, Access::Mmap, Access::Direct, Access::IoUring];

fn try_open(path: &Path, access: Access) -> Result<Box<dyn Daq>, Error> {
    let options = Options { access, buffer_bytes: 8192, depth: 3, ..Options::default() };
    open(&Root::default(), path, &options)
}

/// `None` where the machine lacks this way, which the message then has to say.
fn open_if_there(path: &Path, access: Access) -> Option<Box<dyn Daq>> {
    match try_open(path, access) {
        Ok(daq) => Some(daq),
        Err(Error::Lacks { hint: Some(_), .. }) if matches!(access, Access::Direct | Access::IoUring) => None,
        Err(error) => panic!("{}: {error}", access),
    }
}

fn numbered(len: usize) -> (NamedTempFile, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
    let file = NamedTempFile::new().unwrap();
    file.as_file().write_all_at(&bytes, 0).unwrap();
    (file, bytes)
}

fn collect(daq: &mut dyn Daq, at: u64, bytes: u64, passes: u64, piece: usize) -> Result<Vec<u8>, Error> {
    let mut all = Vec::new();
    daq.stream(Span { at, bytes, passes, piece }, &mut |part| {
        assert!(part.len() <= piece && !part.is_empty());
        all.extend_from_slice(part);
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_way_gives_the_same_bytes(
        len in 0usize..40_000, at in 0usize..40_000, part in 0usize..40_000, passes in 0u64..3, piece in 1usize..20_000,
        shift in 0usize..5,
    ) {
        let (file, bytes) = numbered(len);
        let at = at.min(len);
        let part = part.min(len - at);
        let asked = &bytes[at..at + part];
        for access in FILE_WAYS {
            let Some(mut daq) = open_if_there(file.path(), access) else { continue };
            prop_assert_eq!(daq.about().bytes, Some(len as u64));
            let mut to = vec![0; part + shift];
            daq.read(at as u64, &mut to[shift..]).unwrap();
            prop_assert_eq!(&to[shift..], asked, "read by {}", access);
            let all = collect(&mut *daq, at as u64, part as u64, passes, piece).unwrap();
            prop_assert_eq!(all, asked.repeat(passes as usize), "stream by {}", access);
        }
    }

    #[test]
    fn an_end_too_early_names_both_lengths(len in 0usize..20_000, at in 0usize..30_000, more in 1usize..20_000) {
        let (file, _) = numbered(len);
        let left = len.saturating_sub(at);
        let asked = left + more;
        for access in FILE_WAYS {
            let Some(mut daq) = open_if_there(file.path(), access) else { continue };
            let ended = |result: Result<(), Error>| match result.unwrap_err() {
                Error::Ended { at: a, got, want, .. } => (a, got, want),
                other => panic!("{}: {other}", access),
            };
            let expected = (at as u64, left as u64, asked as u64);
            prop_assert_eq!(ended(daq.read(at as u64, &mut vec![0; asked])), expected, "{}", access);
            let streamed = collect(&mut *daq, at as u64, asked as u64, 1, 4096).map(|_| ());
            prop_assert_eq!(ended(streamed), expected, "{}", access);
            // What is there can be read after it.
            daq.read(0, &mut vec![0; len]).unwrap();
        }
    }
}

#[test]
fn a_stream_ends_where_its_taker_wants_and_can_begin_again() {
    let (file, bytes) = numbered(100_000);
    for access in FILE_WAYS {
        let Some(mut daq) = open_if_there(file.path(), access) else { continue };
        let mut calls = 0;
        let take = &mut |_: &[u8]| {
            calls += 1;
            if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        daq.stream(Span { at: 0, bytes: 100_000, passes: 5, piece: 4096 }, take).unwrap();
        assert_eq!(calls, 2);
        assert_eq!(collect(&mut *daq, 0, 100_000, 1, 4096).unwrap(), bytes);
    }
}

#[test]
fn a_taker_that_panics_leaves_no_request_behind() {
    let (file, bytes) = numbered(100_000);
    for access in FILE_WAYS {
        let Some(mut daq) = open_if_there(file.path(), access) else { continue };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            daq.stream(Span { at: 0, bytes: 100_000, passes: 1, piece: 4096 }, &mut |_| panic!("on purpose"))
        }));
        assert!(panicked.is_err());
        assert_eq!(collect(&mut *daq, 0, 100_000, 1, 4096).unwrap(), bytes);
    }
}

#[test]
fn a_file_cut_short_while_it_is_read_is_an_error() {
    for access in FILE_WAYS {
        let (file, _) = numbered(1 << 20);
        let Some(mut daq) = open_if_there(file.path(), access) else { continue };
        let mut sum = 0u64;
        let result = daq.stream(Span { at: 0, bytes: 1 << 20, passes: 1, piece: 8192 }, &mut |part| {
            file.as_file().set_len(5000).unwrap();
            // Touches what is gone now.
            sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            ControlFlow::Continue(())
        });
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Ended { want: 1048576, .. }), "{}: {error}", access);
        // And the whole of what is left can be read.
        daq.read(0, &mut [0; 5000]).unwrap();
    }
}

#[test]
fn holes_are_zeros() {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    file.as_file().write_all_at(&[9], 500_000).unwrap();
    for access in FILE_WAYS {
        let Some(mut daq) = open_if_there(file.path(), access) else { continue };
        let all = collect(&mut *daq, 0, 1 << 20, 1, 1 << 20).unwrap();
        assert_eq!(all.len(), 1 << 20);
        assert_eq!(all.iter().position(|byte| *byte != 0), Some(500_000), "{}", access);
        assert_eq!(all.iter().rposition(|byte| *byte != 0), Some(500_000), "{}", access);
    }
}

#[test]
fn what_cannot_seek_is_read_on_and_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let bytes: Vec<u8> = (0..50_000u32).map(|i| (i / 3) as u8).collect();
    let (writer, to_write) = (path.clone(), bytes.clone());
    let thread = std::thread::spawn(move || {
        let mut pipe = File::create(writer).unwrap();
        for part in to_write.chunks(777) {
            std::io::Write::write_all(&mut pipe, part).unwrap();
        }
    });
    let mut daq = try_open(&path, Access::Read).unwrap();
    assert_eq!((daq.about().kind, daq.about().bytes), (StreamKind::Char, None));
    let mut first = [0; 1000];
    daq.read(0, &mut first).unwrap();
    assert_eq!(first, bytes[..1000]);
    assert!(matches!(daq.read(8, &mut first).unwrap_err(), Error::Lacks { .. }));
    assert_eq!(collect(&mut *daq, 0, 20_000, 2, 3000).unwrap(), bytes[1000..41_000]);
    thread.join().unwrap();
    let error = daq.read(0, &mut vec![0; 10_000]).unwrap_err();
    assert!(matches!(error, Error::Ended { got: 9000, want: 10_000, .. }), "{error}");
    assert!(daq.about().notes.iter().any(|note| note.contains("cannot seek")));
}

#[test]
fn devices_without_end_and_without_bytes() {
    let mut zero = try_open(Path::new("/dev/zero"), Access::Read).unwrap();
    assert_eq!((zero.about().kind, zero.about().bytes), (StreamKind::Char, None));
    let mut to = [1; 10_000];
    zero.read(1 << 40, &mut to).unwrap();
    assert_eq!(to, [0; 10_000]);
    assert_eq!(collect(&mut *zero, 0, 30_000, 2, 7777).unwrap(), [0; 60_000]);
    let mut null = try_open(Path::new("/dev/null"), Access::Read).unwrap();
    assert!(matches!(null.read(0, &mut to).unwrap_err(), Error::Ended { got: 0, want: 10_000, .. }));
    null.read(0, &mut []).unwrap();
    for access in [Access::Mmap, Access::Direct, Access::Ring] {
        let error = try_open(Path::new("/dev/zero"), access).err().unwrap();
        assert!(matches!(error, Error::Lacks { hint: Some(_), .. }), "{error}");
    }
}

#[test]
fn what_is_no_source_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    assert!(try_open(folder.path(), Access::Read).is_err());
    let missing = try_open(&folder.path().join("none"), Access::Read).err().unwrap();
    assert!(missing.hint().is_some());
    assert!(missing.to_string().contains("none"), "{missing}");
    let (file, _) = numbered(10);
    for access in FILE_WAYS {
        let Some(mut daq) = open_if_there(file.path(), access) else { continue };
        for at in [u64::MAX, i64::MAX as u64] {
            let error = daq.read(at, &mut [0; 16]).unwrap_err();
            assert!(matches!(error, Error::Source { .. }), "{}: {error}", access);
        }
        assert!(daq.write(0, &[0; 4096]).is_err(), "{}", access);
    }
}

#[test]
fn what_is_written_is_read_back() {
    for access in FILE_WAYS {
        let (file, _) = numbered(20_000);
        let options = Options { access, is_writable: true, ..Options::default() };
        let mut daq = match open(&Root::default(), file.path(), &options) {
            Err(Error::Lacks { .. }) => continue,
            daq => daq.unwrap(),
        };
        let mut memory = crate::memory::Buffer::on_node(8192, None).unwrap();
        memory.bytes_mut().fill(5);
        daq.write(4096, memory.bytes()).unwrap();
        let mut read = vec![0; 8192];
        daq.read(4096, &mut read).unwrap();
        assert_eq!(read, [5; 8192]);
    }
}

#[test]
fn aligned_memory_is_read_into_and_the_end_of_a_file_too() {
    const LEN: usize = 100_003;
    let (file, bytes) = numbered(LEN);
    for access in FILE_WAYS {
        let Some(mut daq) = open_if_there(file.path(), access) else { continue };
        let mut memory = crate::memory::Buffer::on_node(LEN, None).unwrap();
        for (at, len) in [(0, LEN), (4096, LEN - 4096), (8192, 40_960), (100, LEN - 100)] {
            let to = &mut memory.bytes_mut()[..len];
            to.fill(0);
            daq.read(at as u64, to).unwrap();
            assert!(to == &bytes[at..at + len], "{} from {at}", access);
        }
        let error = daq.read(4096, &mut memory.bytes_mut()[..LEN]).unwrap_err();
        let expected = (LEN - 4096) as u64;
        assert!(matches!(error, Error::Ended { at: 4096, got, want: 100_003, .. } if got == expected), "{error}");
    }
}
