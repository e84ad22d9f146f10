use std::ops::ControlFlow;

use super::*;
use crate::{Root, daq};

fn open(text: &str, access: Access) -> Result<Box<dyn Daq>, Error> {
    let options = daq::Options { access, is_writable: true, ..daq::Options::default() };
    daq::open(&Root::default(), Path::new(text), &options)
}

fn errno_of(error: &Error) -> Option<i32> {
    match error {
        Error::Source { source, .. } => source.raw_os_error(),
        _ => None,
    }
}

const SETUP: Setup =
    Setup { channels: 0x3ff, samples: 100, pretrigger: 0, divider: Some(3), trigger: Trigger::Backplane(0) };

/// What a channel of an acquisition has to hold, with 112 samples to a channel.
fn expected(acquisition: u64, channel: u8) -> Vec<u8> {
    let mut bytes = vec![0; 224];
    Origin { seed: 5, serial: 9, acquisition, channel }.fill(0, &mut bytes);
    bytes
}

#[test]
fn every_channel_of_every_acquisition_holds_its_samples_in_every_mode() {
    for access in [Access::Read, Access::Mmap] {
        let mut board = open("fake:digitizer?seed=5,serial=9,rate=0", access).unwrap();
        assert_eq!(board.about().serial, Some(9));
        assert_eq!(board.digitizer().unwrap().setup(&SETUP).unwrap(), 112);
        for acquisition in 1..4 {
            assert_eq!(board.digitizer().unwrap().arm().unwrap(), acquisition);
            let digitizer = board.digitizer().unwrap();
            let end = if acquisition == 2 { digitizer.wait_poll(1000) } else { digitizer.wait_interrupt(1000) };
            assert_eq!(end.unwrap().sequence, acquisition);
            let all: Vec<u8> = (0..10).flat_map(|channel| expected(acquisition, channel)).collect();
            let mut read = vec![0; all.len()];
            board.read(0, &mut read).unwrap();
            assert_eq!(read, all, "acquisition {acquisition}");
            let mut streamed = Vec::new();
            let take = &mut |piece: &[u8]| {
                streamed.extend_from_slice(piece);
                ControlFlow::Continue(())
            };
            board.stream(Span { at: 0, bytes: all.len() as u64, passes: 2, piece: 1000 }, take).unwrap();
            assert_eq!(streamed, [all.clone(), all].concat());
        }
    }
}

#[test]
fn a_transfer_takes_the_time_of_its_rate_and_a_ring_overlaps_it_with_the_work() {
    let time = |access| {
        let mut board = open("fake:digitizer?rate=50,memory=16,chunk=64", access).unwrap();
        let begun = Instant::now();
        let take = &mut |_: &[u8]| {
            std::thread::sleep(Duration::from_millis(1));
            ControlFlow::Continue(())
        };
        board.stream(Span { at: 0, bytes: 2 << 20, passes: 1, piece: usize::MAX }, take).unwrap();
        let costs = board.costs().unwrap().unwrap();
        assert_eq!(costs.dma_bytes, 2 << 20);
        assert_eq!(board.costs().unwrap(), Some(Costs::default()));
        begun.elapsed()
    };
    // 42 ms of transfers, 32 ms of work. A busy machine can only make them longer.
    let (transfers, both) = (Duration::from_millis(41), Duration::from_millis(73));
    assert!(time(Access::Read) >= both);
    let overlapped: Vec<Duration> = (0..20).map(|_| time(Access::Ring)).take_while(|time| *time >= both).collect();
    assert!(overlapped.len() < 20, "never faster than one after the other: {overlapped:?}");
    assert!(time(Access::Ring) >= transfers);
}

#[test]
fn a_slow_consumer_makes_the_ring_wait() {
    let mut board = open("fake:digitizer?rate=0,chunk=64", Access::Ring).unwrap();
    let take = &mut |_: &[u8]| {
        std::thread::sleep(Duration::from_millis(1));
        ControlFlow::Continue(())
    };
    board.stream(Span { at: 0, bytes: 1 << 20, passes: 1, piece: usize::MAX }, take).unwrap();
    let costs = board.costs().unwrap().unwrap();
    assert!(costs.stalls > 0 && costs.stall_ns > 1_000_000, "{costs:?}");
}

#[test]
fn each_fault_has_its_error_and_what_passes_leaves_the_next_transfer_alone() {
    let mut to = [0; 64];
    for (fault, number) in [("timeout=2", libc::ETIMEDOUT), ("short=2", libc::EIO)] {
        let mut board = open(&format!("fake:digitizer?{fault}"), Access::Read).unwrap();
        board.read(0, &mut to).unwrap();
        let error = board.read(0, &mut to).unwrap_err();
        assert_eq!(errno_of(&error), Some(number), "{fault}");
        assert!(error.hint().is_some());
        board.read(0, &mut to).unwrap();
    }
    let mut gone = open("fake:digitizer?gone-after=1", Access::Read).unwrap();
    gone.read(0, &mut to).unwrap();
    for _ in 0..2 {
        assert_eq!(errno_of(&gone.read(0, &mut to).unwrap_err()), Some(libc::ENODEV));
    }
    assert_eq!(errno_of(&gone.digitizer().unwrap().arm().unwrap_err()), Some(libc::ENODEV));

    let mut board = open("fake:digitizer?hang=2,lose=3", Access::Read).unwrap();
    let digitizer = board.digitizer().unwrap();
    let mut cycle = || {
        digitizer.arm()?;
        digitizer.wait_interrupt(20)
    };
    assert!(!cycle().unwrap().is_interrupt_lost);
    assert_eq!(errno_of(&cycle().unwrap_err()), Some(libc::ETIMEDOUT));
    assert!(cycle().unwrap().is_interrupt_lost);
    assert!(!cycle().unwrap().is_interrupt_lost);
    assert_eq!(board.costs().unwrap().unwrap().lost_interrupts, 1);

    let mut wrong = open("fake:digitizer?wrong=2", Access::Read).unwrap();
    let mut read = || {
        wrong.read(0, &mut to).unwrap();
        to
    };
    let first = read();
    assert_ne!(read(), first);
    assert_eq!(read(), first);
}

#[test]
fn what_a_board_would_refuse_is_refused() {
    assert_eq!(errno_of(&open("fake:digitizer?refuse", Access::Read).err().unwrap()), Some(libc::EACCES));
    for access in [Access::Direct, Access::IoUring] {
        assert!(matches!(open("fake:digitizer", access).err().unwrap(), Error::Lacks { .. }));
    }
    let unknown = open("fake:digitizer?nonsense", Access::Read).err().unwrap();
    assert!(unknown.to_string().contains("nonsense"), "{unknown}");
    let mut board = open("fake:digitizer?memory=1", Access::Read).unwrap();
    let mut to = [0; 64];
    assert!(matches!(board.read((1 << 20) - 32, &mut to).unwrap_err(), Error::Ended { got: 32, want: 64, .. }));
    assert!(matches!(board.read(1 << 40, &mut to).unwrap_err(), Error::Ended { got: 0, .. }));
    assert!(matches!(board.read(8, &mut to).unwrap_err(), Error::Lacks { .. }));
    let digitizer = board.digitizer().unwrap();
    for bad in [
        Setup { channels: 0, ..SETUP },
        Setup { channels: 1 << 10, ..SETUP },
        Setup { samples: 0, ..SETUP },
        Setup { samples: 1 << 20, ..SETUP },
        Setup { samples: u64::MAX, ..SETUP },
        Setup { pretrigger: 2047, ..SETUP },
        Setup { divider: Some(1), ..SETUP },
        Setup { trigger: Trigger::Backplane(8), ..SETUP },
    ] {
        assert_eq!(errno_of(&digitizer.setup(&bad).unwrap_err()), Some(libc::EINVAL), "{bad:?}");
    }
    assert_eq!(errno_of(&digitizer.wait_poll(1).unwrap_err()), Some(libc::ENODATA));
    let mut busy = open("fake:digitizer?busy", Access::Read).unwrap();
    assert_eq!(errno_of(&busy.digitizer().unwrap().arm().unwrap_err()), Some(libc::EBUSY));
}

#[test]
fn what_was_written_is_read_back() {
    let mut board = open("fake:digitizer?rate=0", Access::Read).unwrap();
    let pattern: Vec<u8> = (0..4096).map(|i| (i % 127) as u8).collect();
    board.write(4096, &pattern).unwrap();
    let mut read = vec![0; 4096];
    board.read(4096, &mut read).unwrap();
    assert_eq!(read, pattern);
}
