//! The list of capabilities that the block is found by: checklist of facts 1.

use super::*;

/// What a driver finds that walks the list from the overlay's first byte: (offset, dword +0, dword +4).
fn walk(block: &mut Block) -> Vec<(u64, u32, u32)> {
    let mut found = Vec::new();
    let mut at = 0x200;
    while at != 0 && found.len() < 6 {
        let header = block.page(at);
        found.push((at, header, block.page(at + 4)));
        at = u64::from(header >> 20);
    }
    found
}

const FIRST: u32 = 0x0001_0025;
const VENDOR: u32 = 0x0001_000b;

#[test]
fn the_block_is_the_second_capability() {
    let mut block = Block::new();
    assert_eq!(walk(&mut block), [(0x200, FIRST | 0x300 << 20, 0), (0x300, VENDOR, 0x1004_0002)]);
    assert_eq!((block.page(0x100), block.page(0x3fc), block.page(0xffc)), (0, 0, 0));
    let mut past = [0; 4];
    block.bank.read(0, 0xffe, &mut past);
    assert_eq!(past, [0, 0, 0xff, 0xff], "past the page");
}

#[test]
fn headers_are_read_only() {
    let mut block = Block::new();
    for offset in [0x200, 0x204, 0x300, 0x304] {
        block.bank.write(0, offset, &[0xff; 4]);
    }
    assert_eq!(walk(&mut block), [(0x200, FIRST | 0x300 << 20, 0), (0x300, VENDOR, 0x1004_0002)]);
}

#[test]
fn a_wrong_revision_a_wrong_id_a_foreign_capability_and_a_loop() {
    let mut block = Block::new();
    block.ctl("vsec rev 5");
    assert_eq!(block.page(0x304), 0x1005_0002);
    block.ctl("vsec id 3");
    assert_eq!(block.page(0x304), 0x1005_0003);
    block.ctl("vsec rev 4");
    block.ctl("vsec id 2");
    block.ctl("vsec foreign-first on");
    let foreign = (0x220, VENDOR | 0x300 << 20, 0x0184_0001);
    assert_eq!(walk(&mut block), [(0x200, FIRST | 0x220 << 20, 0), foreign, (0x300, VENDOR, 0x1004_0002)]);
    block.ctl("vsec loop on");
    let looped = walk(&mut block);
    assert_eq!(looped[2], (0x300, VENDOR | 0x200 << 20, 0x1004_0002));
    assert_eq!(looped[..3], looped[3..]);
    block.ctl("vsec loop off");
    block.ctl("vsec foreign-first off");
    block.ctl("dpc 0x101");
    let containment = (0x210, 0x0001_001d | 0x300 << 20, 0);
    assert_eq!(walk(&mut block), [(0x200, FIRST | 0x210 << 20, 0), containment, (0x300, VENDOR, 0x1004_0002)]);
    assert_eq!(block.page(0x218), 0x101);
    block.ctl("dpc none");
    assert_eq!(walk(&mut block).len(), 2);
    assert_eq!(block.page(0x220), 0);
}

#[test]
fn shapes_that_do_not_fit_are_told_from_those_that_do() {
    let shape = |first, vsec| Shape { first, vsec, ..Shape::default() };
    for (first, vsec) in [(0x100, 0x138), (0x200, 0x300), (0x200, 0xf00), (0xe00, 0xe38)] {
        assert!(shape(first, vsec).is_sound(), "{first:#x} {vsec:#x}");
    }
    for (first, vsec) in [(0xfc, 0x300), (0x202, 0x300), (0x200, 0x302), (0x200, 0x234), (0x300, 0x200), (0x200, 0xf04)]
    {
        assert!(!shape(first, vsec).is_sound(), "{first:#x} {vsec:#x}");
    }
    let port = Traffic::new().port("0000:00:02.0".parse().unwrap());
    let mut block = Block::new();
    block.bank = RasdesBank::new(port, shape(0x200, 0x4a0));
    assert_eq!((block.page(0x200), block.page(0x4a4), block.page(0x4b0)), (FIRST | 0x4a0 << 20, 0x1004_0002, 0x100));
}

proptest! {
    /// No access panics, and a read fills all of its bytes.
    #[test]
    fn any_access_is_answered(
        offset in prop_oneof![0u64..0x1100, 0x2f8u64..0x408, any::<u64>()], len in 0usize..20, value in any::<u8>(),
    ) {
        let mut block = Block::new();
        block.bank.write(5, offset, &vec![value; len]);
        let mut seen = vec![0x5a; len];
        block.bank.read(6, offset, &mut seen);
        if offset >= PAGE {
            prop_assert!(seen.iter().all(|byte| *byte == 0xff));
        }
    }
}
