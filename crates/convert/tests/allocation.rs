//! A conversion allocates nothing. A program of its own: an allocator that counts belongs to the whole process.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pciescope_convert::{Conversion, Decimation, Isa, Operation, Sample, Store};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_conversion_allocates() {
    let input = vec![1u16; 30_000];
    let (mut single, mut double) = (vec![0f32; 30_000], vec![0f64; 30_000]);
    Store::threshold();
    for isa in Isa::available() {
        let plain = Conversion::new(Sample::U16, Operation::Scale { factor: 0.1, offset: 0.2 }).unwrap();
        let plain = plain.with_isa(isa).unwrap();
        let some = plain.with_decimation(Decimation { offset: 5, factor: 3 }).unwrap();
        let before = COUNT.get();
        for conversion in [plain, some] {
            conversion.to_f32(&input, &mut single).unwrap();
            conversion.to_f64(&input, &mut double).unwrap();
            let mut progress = conversion.stream();
            for chunk in input.chunks(777) {
                progress.to_f64(chunk, &mut double).unwrap();
            }
        }
        assert_eq!(COUNT.get(), before, "{isa}");
    }
    let before = COUNT.get();
    drop(vec![1u8; 10]);
    assert!(COUNT.get() > before, "the counter counts");
}
