//! A register in mapped memory, and the three tests of it.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use pciescope_core::record::Failure;
use pciescope_core::{Bdf, MmioPlan, MmioTest};

use super::sys::Mapping;
use super::sysfs::ConfigRead;
use super::userspace::{Job, Target, measure};
use super::{Sampled, Slice, Watch, failure};
use crate::Error;
use crate::config::Config;
use crate::guard::Guard;

/// A mapped window of a BAR that can be accessed.
#[derive(Debug)]
pub struct Window {
    // Dropped before the mapping that it guards.
    guard: Option<Guard>,
    mapping: Mapping,
    /// Offset of the window's first byte in its BAR.
    from: u64,
    /// Bytes of the mapping before that.
    skipped: u64,
}

impl Window {
    /// Takes a mapping whose first byte is byte `from` of its BAR.
    pub fn new(mapping: Mapping, from: u64) -> Self {
        // A table that is full leaves it without: a removal then kills the program.
        let guard = Guard::new(mapping.at(0, 0).as_ptr().addr(), mapping.len(), 0xff).ok();
        Window { guard, mapping, from, skipped: 0 }
    }

    /// The same window for a mapping that begins `skipped` bytes before the BAR: a BAR that is smaller than a page may
    /// begin anywhere in the page.
    pub fn skipping(self, skipped: u64) -> Self {
        Window { skipped, ..self }
    }

    /// Whether an access found the device gone.
    pub fn is_gone(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::was_hit)
    }

    /// Whether an access lies inside.
    pub fn holds(&self, offset: u64, width: u8) -> bool {
        let end = offset.checked_add(width.into());
        offset >= self.from && end.is_some_and(|end| end <= self.from + self.mapping.len() as u64 - self.skipped)
    }

    fn at<W>(&self, offset: u64) -> NonNull<W> {
        self.mapping.at((offset - self.from + self.skipped) as usize, size_of::<W>()).cast()
    }

    /// Reads once at a place that is checked and inside.
    pub fn read(&self, offset: u64, width: u8) -> u64 {
        match width {
            1 => Register::<u8>::new(self, offset, 0).read().into(),
            2 => Register::<u16>::new(self, offset, 0).read().into(),
            4 => Register::<u32>::new(self, offset, 0).read().into(),
            _ => Register::<u64>::new(self, offset, 0).read(),
        }
    }

    /// Writes once at a place that is checked and inside.
    pub fn write(&self, offset: u64, width: u8, value: u64) {
        match width {
            1 => Register::<u8>::new(self, offset, value).write(),
            2 => Register::<u16>::new(self, offset, value).write(),
            4 => Register::<u32>::new(self, offset, value).write(),
            _ => Register::<u64>::new(self, offset, value).write(),
        }
    }

    /// Times the plan's test, at a place that is checked and inside, for a probe named `backend`. `present` says why the
    /// device cannot be measured any more; `control` is the configuration space of the port above, which is read for comparison
    /// where the plan asks for causes.
    ///
    /// # Errors
    /// Those of [`measure`].
    pub fn measure(
        &self,
        (backend, emulated): (&'static str, bool),
        plan: &MmioPlan,
        slice: &Slice,
        control: Option<&File>,
        present: &(dyn Fn() -> Option<Failure> + Sync),
        watch: &dyn Watch,
    ) -> Result<Sampled, Error> {
        let gone = || if self.is_gone() { Some(failure::removed(plan.bdf)) } else { present() };
        let control = control.filter(|_| plan.why.is_some()).map(|config| ConfigRead { config, offset: 0 });
        let job = Job {
            backend,
            bdf: plan.bdf,
            emulated,
            slice,
            gap_ns: plan.gap_ns,
            batch: plan.batch,
            ones_ok: plan.ones_ok,
            raw: plan.raw || plan.why.is_some(),
            control: control.as_ref().map(|control| control as &dyn Target),
            place: &format!("BAR{}:{:#x}", plan.bar, plan.offset),
            gone: &gone,
        };
        match plan.width {
            1 => self.of_width::<u8>(plan, &job, watch),
            2 => self.of_width::<u16>(plan, &job, watch),
            4 => self.of_width::<u32>(plan, &job, watch),
            _ => self.of_width::<u64>(plan, &job, watch),
        }
    }

    fn of_width<W: Word>(&self, plan: &MmioPlan, job: &Job, watch: &dyn Watch) -> Result<Sampled, Error> {
        let register = Register::<W>::new(self, plan.offset, plan.value);
        match plan.test {
            MmioTest::Read => measure(&[Reading(register)], job, watch),
            MmioTest::Write => measure(&[Writing(register)], job, watch),
            MmioTest::WriteRead => measure(&[WritingAndReading(register)], job, watch),
        }
    }
}

/// Refuses a width, an alignment or a place that no BAR of `len` bytes has.
///
/// # Errors
/// [`Error::Plan`] or [`Error::OutsideBar`].
pub fn check(bdf: Bdf, bar: u8, offset: u64, width: u8, len: u64) -> Result<(), Error> {
    let refuse = |field, value: String, why: &str| Err(Error::Plan { bdf, field, value, why: why.to_owned() });
    if ![1, 2, 4, 8].contains(&width) {
        return refuse("width", width.to_string(), "an access has 1, 2, 4 or 8 bytes");
    }
    if offset.checked_add(width.into()).is_none_or(|end| end > len) {
        return Err(Error::OutsideBar { bdf, bar, offset, len });
    }
    if offset % u64::from(width) != 0 {
        return refuse("offset", format!("{offset:#x}"), "it is not a multiple of the width");
    }
    Ok(())
}

/// An access whose width, alignment and place are right, as a refusal names it.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// The backend's name.
    pub backend: &'static str,
    /// The function.
    pub bdf: Bdf,
    /// Its BAR.
    pub bar: u8,
    /// Byte offset in the BAR.
    pub offset: u64,
    /// Bytes.
    pub width: u8,
    /// Whether it writes.
    pub is_write: bool,
}

impl Access {
    /// What it does, in the words of a refusal.
    pub fn what(&self) -> String {
        let Access { bar, offset, width, is_write, .. } = self;
        format!("{} {width} bytes at BAR{bar}:{offset:#x}", if *is_write { "write" } else { "read" })
    }

    /// Refuses what the kernel module refuses (kmod/pcilat/access.c, `pcilat_hits_msix`): to write to the MSI-X table and
    /// its pending bits, and to read 1 or 2 bytes there.
    ///
    /// # Errors
    /// [`Error::Call`], also where the function's configuration space does not say where they lie.
    pub fn check_msix(&self, config: &Config) -> Result<(), Error> {
        if !self.is_write && self.width >= 4 {
            return Ok(());
        }
        // A device that does not answer has its own failure.
        if let Some(why) = config.limit().filter(|_| !config.is_gone()) {
            let why = format!("the place of the MSI-X table, which belongs to the kernel, is not known: {why}");
            return Err(self.refusal(why, "try as root"));
        }
        let end = self.offset.saturating_add(self.width.into());
        let hits = config
            .msix_parts()
            .any(|part| part.at.bar == self.bar && end > part.at.offset && self.offset < part.at.offset + part.bytes);
        if hits { Err(self.msix_refusal()) } else { Ok(()) }
    }

    /// The refusal of an access to the MSI-X table or its pending bits.
    pub fn msix_refusal(&self) -> Error {
        let why = if self.is_write {
            "they belong to the kernel, and a write would change where interrupts go"
        } else {
            "no device must answer a read of 1 or 2 bytes there, and on arm64 such a read may crash the kernel"
        };
        self.refusal(format!("the MSI-X table or its pending bits lie there: {why}"), "--width 4 or 8 may read there")
    }

    fn refusal(&self, why: String, hint: &str) -> Error {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, why);
        Error::call(self.bdf, self.backend, self.what(), source, Some(hint))
    }
}

/// A width of access.
trait Word: Copy + Eq + Send + Sync + 'static {
    const ONES: Self;
    fn from_u64(value: u64) -> Self;
    fn to_u64(self) -> u64;
}

macro_rules! words {
    ($($word:ty),*) => {$(
        impl Word for $word {
            const ONES: Self = <$word>::MAX;
            fn from_u64(value: u64) -> Self {
                value as $word
            }
            fn to_u64(self) -> u64 {
                self.into()
            }
        }
    )*};
}
words!(u8, u16, u32, u64);

/// A register of a width, with what is written to it.
#[derive(Clone, Copy)]
struct Register<'a, W> {
    at: NonNull<W>,
    value: W,
    window: &'a Window,
}

// SAFETY: the mapping may be accessed from any thread (see Mapping), and the borrow keeps it.
unsafe impl<W: Word> Sync for Register<'_, W> {}

impl<'a, W: Word> Register<'a, W> {
    /// # Panics
    /// If the place is not inside the window or not aligned; callers check both with texts for people.
    fn new(window: &'a Window, offset: u64, value: u64) -> Self {
        assert!(offset % size_of::<W>() as u64 == 0, "{offset:#x} is not aligned");
        Register { at: window.at(offset), value: W::from_u64(value), window }
    }

    #[inline(always)]
    fn read(self) -> W {
        // SAFETY: `new` checked that the place lies in the mapping and is aligned; the borrow keeps the mapping.
        unsafe { self.at.as_ptr().read_volatile() }
    }

    #[inline(always)]
    fn write(self) {
        // SAFETY: as above.
        unsafe { self.at.as_ptr().write_volatile(self.value) }
    }
}

struct Reading<'a, W>(Register<'a, W>);
struct Writing<'a, W>(Register<'a, W>);
struct WritingAndReading<'a, W>(Register<'a, W>);

impl<W: Word> Target for Reading<'_, W> {
    #[inline(always)]
    fn access(&self) -> (u64, bool) {
        let value = self.0.read();
        (value.to_u64(), value == W::ONES)
    }

    fn is_gone(&self) -> bool {
        self.0.window.is_gone()
    }
}

impl<W: Word> Target for Writing<'_, W> {
    #[inline(always)]
    fn access(&self) -> (u64, bool) {
        self.0.write();
        (0, false)
    }

    fn is_gone(&self) -> bool {
        self.0.window.is_gone()
    }
}

impl<W: Word> Target for WritingAndReading<'_, W> {
    #[inline(always)]
    fn access(&self) -> (u64, bool) {
        self.0.write();
        let value = self.0.read();
        // Where all-ones were written, the register may read so.
        (value.to_u64(), value == W::ONES && self.0.value != W::ONES)
    }

    fn is_gone(&self) -> bool {
        self.0.window.is_gone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use pciescope_core::outcome::LATENCY;

    use super::*;
    use crate::test::Silent;

    fn window(file: &File) -> Window {
        file.set_len(8192).unwrap();
        Window::new(Mapping::new(file, 4096, 4096, true).unwrap(), 0x1000)
    }

    fn plan(test: MmioTest, width: u8) -> MmioPlan {
        let reads = MmioPlan::reads("0000:01:00.0".parse().unwrap(), 0, 0x1010, width);
        MmioPlan { test, value: 0x1122_3344_5566_7788, batch: 2, ..reads }
    }

    fn measure(window: &Window, plan: &MmioPlan) -> Sampled {
        let cpus = [crate::probe::sys::current_cpu()].into_iter().collect();
        let slice = Slice { cpus, count: 500, duration_ns: 0 };
        window.measure(("test", false), plan, &slice, None, &|| None, &Silent).unwrap()
    }

    #[test]
    fn each_test_and_width_touches_its_bytes_and_no_others() {
        for width in [1u8, 2, 4, 8] {
            let file = tempfile::tempfile().unwrap();
            let window = window(&file);
            for test in [MmioTest::Read, MmioTest::Write, MmioTest::WriteRead] {
                let sampled = measure(&window, &plan(test, width));
                assert_eq!(sampled.failure, None);
                assert_eq!(sampled.outcomes[0].histograms[LATENCY].count(), 500);
                let written = if test == MmioTest::Read { 0 } else { 0x1122_3344_5566_7788 };
                assert_eq!(window.read(0x1010, 8), written & u64::MAX >> (64 - 8 * u32::from(width)));
                assert_eq!(window.read(0x1018, 8), 0);
            }
        }
    }

    #[test]
    fn a_bar_that_begins_inside_its_page_is_read_where_it_is() {
        let file = tempfile::tempfile().unwrap();
        window(&file).write(0x1804, 4, 0x5c0e);
        let small = Window::new(Mapping::new(&file, 4096, 4096, true).unwrap(), 0).skipping(0x800);
        assert_eq!(small.read(4, 4), 0x5c0e);
        assert!(small.holds(0x7fc, 4) && !small.holds(0x7fe, 4));
    }

    #[test]
    fn a_device_that_goes_away_under_the_loop_ends_it_as_removed() {
        for test in [MmioTest::Read, MmioTest::Write, MmioTest::WriteRead] {
            let file = tempfile::tempfile().unwrap();
            let window = window(&file);
            file.set_len(0).unwrap();
            let sampled = measure(&window, &plan(test, 4));
            assert_eq!(sampled.failure.unwrap().code, "removed", "{test:?}");
            assert_eq!(sampled.outcomes[0].error.as_ref().unwrap().code, "removed", "{test:?}");
            assert_eq!(sampled.outcomes[0].histograms[LATENCY].count(), 0, "{test:?}");
        }
    }

    #[test]
    fn all_ones_that_were_written_may_be_read_back() {
        let file = tempfile::tempfile().unwrap();
        let window = window(&file);
        for width in [1u8, 2, 4, 8] {
            let ones = MmioPlan { value: u64::MAX, ..plan(MmioTest::WriteRead, width) };
            let sampled = measure(&window, &ones);
            assert_eq!((sampled.failure, sampled.outcomes[0].histograms[LATENCY].count()), (None, 500), "{width}");
            // Nobody wrote them for a read.
            let sampled = measure(&window, &plan(MmioTest::Read, width));
            assert_eq!(sampled.failure.unwrap().code, "all-ones", "{width}");
        }
    }

    #[test]
    fn single_accesses_read_back_what_they_wrote() {
        let file = tempfile::tempfile().unwrap();
        let window = window(&file);
        window.write(0x1ff8, 8, u64::MAX - 5);
        window.write(0x1ffe, 2, 0x1234);
        assert_eq!(window.read(0x1ff8, 8), 0x1234_ffff_ffff_fffa);
        assert_eq!((window.read(0x1fff, 1), window.read(0x1ffc, 4)), (0x12, 0x1234_ffff));
        assert!(window.holds(0x1ff8, 8) && !window.holds(0x1ffc, 8) && !window.holds(0xff8, 8));
    }

    #[test]
    fn msix_is_not_written_to_and_read_only_by_words() {
        // MSI-X at 0x40 with 16 vectors, the table at BAR4:0x100, the pending bits at BAR4:0x800.
        let mut config = vec![0; 256];
        (config[0x06], config[0x34]) = (0x10, 0x40);
        config[0x40..0x4c].copy_from_slice(&[0x11, 0, 15, 0, 4, 1, 0, 0, 4, 8, 0, 0]);
        let bdf = "0000:01:00.0".parse().unwrap();
        let at = |bar, offset, width, is_write| Access { backend: "vfio", bdf, bar, offset, width, is_write };
        let refused = |access: Access| access.check_msix(&Config::parse(&config)).err();
        for (offset, width, hits) in [
            (0xff, 1, false),
            (0xf8, 8, false),
            (0x100, 1, true),
            (0x1f8, 8, true),
            (0x1ff, 1, true),
            (0x200, 1, false),
            (0x7fc, 4, false),
            (0x800, 2, true),
            (0x807, 1, true),
            (0x808, 8, false),
        ] {
            assert_eq!(refused(at(4, offset, width, true)).is_some(), hits, "a write at {offset:#x}");
            assert_eq!(refused(at(4, offset, width, false)).is_some(), hits && width < 4, "a read at {offset:#x}");
            assert!(refused(at(2, offset, width, true)).is_none(), "another BAR, {offset:#x}");
        }
        let (write, read) = (refused(at(4, 0x10c, 4, true)).unwrap(), refused(at(4, 0x802, 2, false)).unwrap());
        assert_eq!(write.to_string(), "0000:01:00.0: the vfio backend could not write 4 bytes at BAR4:0x10c");
        assert_eq!(read.to_string(), "0000:01:00.0: the vfio backend could not read 2 bytes at BAR4:0x802");
        let cause = |error: &Error| std::error::Error::source(error).unwrap().to_string();
        assert!(cause(&write).contains("MSI-X table") && cause(&write).contains("where interrupts go"));
        assert!(cause(&read).contains("MSI-X table") && cause(&read).contains("1 or 2 bytes"));
        assert!(read.hint().unwrap().contains("--width 4"));
    }

    #[test]
    fn nothing_is_written_where_msix_may_lie_anywhere() {
        let bdf = "0000:01:00.0".parse().unwrap();
        let at = |width, is_write| Access { backend: "resource", bdf, bar: 0, offset: 0, width, is_write };
        for short in [&[][..], &[0; 64]] {
            let config = Config::parse(short);
            assert!(at(4, false).check_msix(&config).is_ok());
            for access in [at(4, true), at(2, false)] {
                let error = access.check_msix(&config).unwrap_err();
                let cause = std::error::Error::source(&error).unwrap().to_string();
                assert!(cause.contains("not known") && cause.contains("configuration space"), "{cause}");
                assert!(error.hint().unwrap().contains("root"));
            }
        }
        // A device that is gone is told to be so, and not this.
        assert!(at(4, true).check_msix(&Config::parse(&[0xff; 256])).is_ok());
    }

    #[test]
    fn a_bad_place_is_refused_by_its_reason() {
        let bdf = "0000:01:00.0".parse().unwrap();
        let text = |offset, width| check(bdf, 0, offset, width, 0x1000).map_err(|e| e.to_string());
        assert_eq!(text(0xffc, 4), Ok(()));
        assert!(text(0xffd, 4).unwrap_err().contains("outside BAR0"));
        assert!(text(u64::MAX, 8).unwrap_err().contains("outside BAR0"));
        assert!(text(2, 4).unwrap_err().contains("multiple of the width"));
        assert!(text(0, 3).unwrap_err().contains("1, 2, 4 or 8"));
    }
}
