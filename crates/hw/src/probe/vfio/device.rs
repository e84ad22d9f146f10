//! A device opened through VFIO's group and container.
//!
//! vfio-bindings gives the structures; the calls are made here and not by vfio-ioctls, which only logs why a region
//! could not be read, does not tell which step of opening failed, and brings the guest memory of a hypervisor along.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use pciescope_core::Bdf;
use vfio_bindings::bindings::vfio;

use super::super::resource::folder;
use super::super::sys::{self, EventFd, Mapping, checked};
use crate::config::Config;
use crate::{Error, Root};

/// The number of one of VFIO's ioctls: `_IO(';', 100 + number)`.
const fn io_number(number: u32) -> libc::Ioctl {
    libc::_IO(vfio::VFIO_TYPE as u32, vfio::VFIO_BASE + number)
}
const GET_API_VERSION: libc::Ioctl = io_number(0);
const CHECK_EXTENSION: libc::Ioctl = io_number(1);
const SET_IOMMU: libc::Ioctl = io_number(2);
const GROUP_GET_STATUS: libc::Ioctl = io_number(3);
const GROUP_SET_CONTAINER: libc::Ioctl = io_number(4);
const GROUP_GET_DEVICE_FD: libc::Ioctl = io_number(6);
const DEVICE_GET_REGION_INFO: libc::Ioctl = io_number(8);
const DEVICE_GET_IRQ_INFO: libc::Ioctl = io_number(9);
const DEVICE_SET_IRQS: libc::Ioctl = io_number(10);

/// Memory decoding and bus mastering in the command register: without the second no MSI leaves the device.
const COMMAND: u64 = 4;
const COMMAND_MEMORY_AND_MASTER: u16 = 0x2 | 0x4;

/// A register of configuration space that vfio-pci reads from the device, and that is all-ones in no device.
const REVISION_AND_CLASS: u64 = 8;

/// A window of the device as VFIO offers it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Region {
    /// Its offset in the device's file.
    pub at: u64,
    /// Its length in bytes; 0: there is none.
    pub len: u64,
    /// The parts that can be mapped: offset in the region and length.
    pub mappable: Vec<(u64, u64)>,
}

/// An open device. Closing it hands the device back to vfio-pci, which resets it.
#[derive(Debug)]
pub struct Device {
    bdf: Bdf,
    // Fields are dropped in this order, which VFIO asks for.
    file: File,
    _group: File,
    _container: File,
    regions: Vec<Region>,
    command: Option<u16>,
}

/// The group of a function: its number in words.
pub fn group_of(root: &Root, bdf: Bdf) -> Option<String> {
    let link = std::fs::read_link(folder(root, bdf).join("iommu_group")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

fn open_rw(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

impl Device {
    /// Opens a function that vfio-pci holds.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an IOMMU; [`Error::Call`] for each step, with what to do.
    pub fn open(root: &Root, bdf: Bdf) -> Result<Self, Error> {
        let fail = |what: String, source: io::Error, hint: Option<&str>| Error::call(bdf, "vfio", what, source, hint);
        let unusable = |why: String| Error::unsupported(bdf, "vfio", "be used", why);
        let Some(group_name) = group_of(root, bdf) else {
            let why =
                "the function has no IOMMU group: the IOMMU is off (intel_iommu=on, amd_iommu, firmware) or absent";
            return Err(unusable(why.to_owned()));
        };
        let container_path = root.path("/dev/vfio/vfio");
        let container = open_rw(&container_path).map_err(|error| {
            fail(format!("open {}", container_path.display()), error, Some("`modprobe vfio-pci`, and root"))
        })?;
        // SAFETY: takes no argument.
        let version = checked(unsafe { libc::ioctl(container.as_raw_fd(), GET_API_VERSION) })
            .map_err(|error| fail("ask VFIO for its version".to_owned(), error, None))?;
        if version != vfio::VFIO_API_VERSION as i32 {
            return Err(unusable(format!("VFIO speaks version {version}, this program {}", vfio::VFIO_API_VERSION)));
        }
        let group_path = root.path(format!("/dev/vfio/{group_name}"));
        let group = open_rw(&group_path).map_err(|error| {
            let bind = format!("add --bind, or for many runs `pciescope bind {bdf} --driver vfio-pci`");
            let hint = match error.raw_os_error() {
                Some(libc::EBUSY) => "another process uses this IOMMU group",
                Some(libc::ENOENT) => &bind,
                _ => "run as root, or change the owner of the group's node to you",
            };
            fail(format!("open {}", group_path.display()), error, Some(hint))
        })?;
        let mut status = vfio::vfio_group_status { argsz: size_of::<vfio::vfio_group_status>() as u32, flags: 0 };
        // SAFETY: the call takes a vfio_group_status.
        unsafe { sys::ioctl(&group, GROUP_GET_STATUS, &mut status) }
            .map_err(|error| fail(format!("ask for IOMMU group {group_name}"), error, None))?;
        if status.flags & vfio::VFIO_GROUP_FLAGS_VIABLE == 0 {
            let why = format!("other functions of IOMMU group {group_name} are held by their own drivers");
            return Err(unusable(why));
        }
        let mut container_fd = container.as_raw_fd();
        // SAFETY: the call takes the address of a descriptor.
        unsafe { sys::ioctl(&group, GROUP_SET_CONTAINER, &mut container_fd) }
            .map_err(|error| fail(format!("put IOMMU group {group_name} into a container"), error, None))?;
        let iommu = [vfio::VFIO_TYPE1v2_IOMMU, vfio::VFIO_TYPE1_IOMMU].into_iter().find(|kind| {
            // SAFETY: takes a number.
            unsafe { libc::ioctl(container.as_raw_fd(), CHECK_EXTENSION, libc::c_ulong::from(*kind)) > 0 }
        });
        let iommu = iommu.ok_or_else(|| unusable("this kernel's VFIO has no type 1 IOMMU".to_owned()))?;
        // SAFETY: takes a number.
        checked(unsafe { libc::ioctl(container.as_raw_fd(), SET_IOMMU, libc::c_ulong::from(iommu)) })
            .map_err(|error| fail("set the IOMMU up".to_owned(), error, None))?;
        let name = CString::new(bdf.to_string()).expect("an address holds no zero byte");
        // SAFETY: takes a text that ends in zero and lives past the call.
        let fd = checked(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD, name.as_ptr()) })
            .map_err(|error| fail("open the device in its IOMMU group".to_owned(), error, None))?;
        // SAFETY: the descriptor was just made for us.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut device = Device { bdf, file, _group: group, _container: container, regions: Vec::new(), command: None };
        for index in 0..=vfio::VFIO_PCI_CONFIG_REGION_INDEX {
            device.regions.push(device.region_info(index)?);
        }
        device.turn_on()?;
        Ok(device)
    }

    fn call(&self, what: String, source: io::Error) -> Error {
        Error::Call { bdf: self.bdf, backend: "vfio", what, source, hint: None }
    }

    fn turn_on(&mut self) -> Result<(), Error> {
        let read = self.config(COMMAND).map_err(|e| self.call("read the command register".to_owned(), e))?;
        let command = u16::from_le_bytes(read);
        let wanted = command | COMMAND_MEMORY_AND_MASTER;
        let at = self.regions[vfio::VFIO_PCI_CONFIG_REGION_INDEX as usize].at + COMMAND;
        self.file
            .write_all_at(&wanted.to_le_bytes(), at)
            .map_err(|error| self.call("turn memory decoding and bus mastering on".to_owned(), error))?;
        self.command = Some(command);
        Ok(())
    }

    fn config<const BYTES: usize>(&self, offset: u64) -> io::Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        let region = &self.regions[vfio::VFIO_PCI_CONFIG_REGION_INDEX as usize];
        self.file.read_exact_at(&mut bytes, region.at + offset)?;
        Ok(bytes)
    }

    /// The 256 bytes of conventional configuration space, with all capabilities that are not extended ones.
    ///
    /// # Errors
    /// Those of pread.
    pub fn said(&self) -> io::Result<Config> {
        Ok(Config::parse(&self.config::<256>(0)?))
    }

    /// Whether the device answers configuration reads. Its class is read and not its identity: vfio-pci answers for the
    /// identity from a copy, also when the device is gone.
    pub fn is_present(&self) -> bool {
        self.config(REVISION_AND_CLASS).is_ok_and(|register: [u8; 4]| register != [0xff; 4])
    }

    fn region_info(&self, index: u32) -> Result<Region, Error> {
        // Room for the structure and the capabilities behind it. A region without a BAR gives EINVAL.
        #[repr(C, align(8))]
        struct Room([u8; 4096]);
        let mut room = Room([0; 4096]);
        room.0[0..4].copy_from_slice(&(size_of::<Room>() as u32).to_ne_bytes());
        room.0[8..12].copy_from_slice(&index.to_ne_bytes());
        // SAFETY: the call takes a vfio_region_info with `argsz` bytes in all, which is what Room is.
        match unsafe { sys::ioctl(&self.file, DEVICE_GET_REGION_INFO, &mut room) } {
            Ok(_) => Ok(parse_region(&room.0)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Region::default()),
            Err(error) => Err(self.call(format!("ask for region {index}"), error)),
        }
    }

    /// The window of a BAR.
    pub fn bar(&self, bar: u8) -> Region {
        self.regions.get(usize::from(bar)).filter(|_| bar < 6).cloned().unwrap_or_default()
    }

    /// Maps a page or more of a BAR.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn map(&self, bar: u8, from: u64, len: usize) -> io::Result<Mapping> {
        Mapping::new(&self.file, self.bar(bar).at + from, len, true)
    }

    /// Reads through the kernel, for windows that cannot be mapped.
    ///
    /// # Errors
    /// Those of pread; EINVAL and EIO where the device does not answer.
    pub fn read(&self, bar: u8, offset: u64, width: u8) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes[..width.into()], self.bar(bar).at + offset)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes through the kernel.
    ///
    /// # Errors
    /// Those of pwrite.
    pub fn write(&self, bar: u8, offset: u64, width: u8, value: u64) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes()[..width.into()], self.bar(bar).at + offset)
    }

    /// How many interrupts of an index (INTx, MSI, MSI-X, request) the device has.
    pub fn interrupts(&self, index: u32) -> u32 {
        let mut info =
            vfio::vfio_irq_info { argsz: size_of::<vfio::vfio_irq_info>() as u32, index, ..Default::default() };
        // SAFETY: the call takes a vfio_irq_info.
        match unsafe { sys::ioctl(&self.file, DEVICE_GET_IRQ_INFO, &mut info) } {
            Ok(_) => info.count,
            Err(_) => 0,
        }
    }

    fn set_interrupts(&self, flags: u32, index: u32, start: u32, count: u32, fds: &[&EventFd]) -> io::Result<()> {
        let mut words = vec![0, flags, index, start, count];
        words.extend(fds.iter().map(|fd| fd.raw() as u32));
        words[0] = (words.len() * 4) as u32;
        // SAFETY: five words and what follows them are a vfio_irq_set of `argsz` bytes.
        checked(unsafe { libc::ioctl(self.file.as_raw_fd(), DEVICE_SET_IRQS, words.as_mut_ptr()) })?;
        Ok(())
    }

    /// Has the interrupts of an index raise these counters, the first vector the first.
    ///
    /// # Errors
    /// ENOSPC where the machine has not as many vectors.
    pub fn enable_interrupts(&self, index: u32, fds: &[&EventFd]) -> io::Result<()> {
        let flags = vfio::VFIO_IRQ_SET_DATA_EVENTFD | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
        self.set_interrupts(flags, index, 0, fds.len() as u32, fds)
    }

    /// Disables the interrupts of an index.
    pub fn disable_interrupts(&self, index: u32) {
        let flags = vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
        // An error means that nothing was enabled or that the device is gone. Both are fine.
        let _ = self.set_interrupts(flags, index, 0, 0, &[]);
    }

    /// Has VFIO raise a vector's counter itself.
    ///
    /// # Errors
    /// EINVAL where the vector is not enabled.
    pub fn raise(&self, index: u32, vector: u32) -> io::Result<()> {
        let flags = vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
        self.set_interrupts(flags, index, vector, 1, &[])
    }

    /// Unmasks INTx, which VFIO masks at each interrupt.
    ///
    /// # Errors
    /// Those of the call.
    pub fn unmask_intx(&self) -> io::Result<()> {
        let flags = vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_UNMASK;
        self.set_interrupts(flags, vfio::VFIO_PCI_INTX_IRQ_INDEX, 0, 1, &[])
    }
}

#[cfg(test)]
impl Device {
    /// A device that is only its configuration space: the identity, and the register of revision and class.
    pub(super) fn of_config(identity: u32, class: u32) -> Self {
        let file = || tempfile::tempfile().expect("a file for the test");
        let config = file();
        let words = [identity, 0, class, 0].map(u32::to_le_bytes);
        config.write_all_at(&words.concat(), 0).expect("a file for the test");
        let regions = vec![Region::default(); vfio::VFIO_PCI_CONFIG_REGION_INDEX as usize + 1];
        let bdf = "0000:01:00.0".parse().expect("an address");
        Device { bdf, file: config, _group: file(), _container: file(), regions, command: None }
    }

    /// Gives it a BAR that cannot be mapped.
    pub(super) fn with_bar(mut self, bar: u8, len: u64) -> Self {
        self.regions[usize::from(bar)] = Region { at: 0, len, mappable: Vec::new() };
        self
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(command) = self.command {
            let at = self.regions[vfio::VFIO_PCI_CONFIG_REGION_INDEX as usize].at + COMMAND;
            // A device that is gone has no command register any more.
            let _ = self.file.write_all_at(&command.to_le_bytes(), at);
        }
    }
}

/// A vfio_region_info and the capabilities behind it.
fn parse_region(bytes: &[u8]) -> Region {
    let u16_at = |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes(b.try_into().expect("two bytes")));
    let u32_at = |at: usize| bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes(b.try_into().expect("four bytes")));
    let u64_at =
        |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("eight bytes")));
    let (flags, len, at) = (u32_at(4), u64_at(16), u64_at(24));
    let mut mappable = Vec::new();
    if flags & vfio::VFIO_REGION_INFO_FLAG_MMAP != 0 {
        mappable.push((0, len));
    }
    let mut cap = if flags & vfio::VFIO_REGION_INFO_FLAG_CAPS != 0 { u32_at(12) as usize } else { 0 };
    // Offsets must ascend: a broken chain ends.
    while cap != 0 {
        if u32::from(u16_at(cap)) == vfio::VFIO_REGION_INFO_CAP_SPARSE_MMAP {
            let areas = u32_at(cap + 8).min(64) as usize;
            mappable = (0..areas).map(|n| (u64_at(cap + 16 + 16 * n), u64_at(cap + 24 + 16 * n))).collect();
        }
        let next = u32_at(cap + 4) as usize;
        cap = if next > cap { next } else { 0 };
    }
    mappable.retain(|(_, len)| *len > 0);
    Region { at, len, mappable }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(flags: u32, cap: u32) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        for (at, word) in [(4, flags), (12, cap)] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[16..24].copy_from_slice(&0x4000u64.to_ne_bytes());
        bytes[24..32].copy_from_slice(&0x10_0000_0000u64.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_region_maps_whole_in_parts_or_not_at_all() {
        let region = parse_region(&info(7, 0));
        assert_eq!((region.at, region.len, region.mappable), (0x10_0000_0000, 0x4000, vec![(0, 0x4000)]));
        assert_eq!(parse_region(&info(3, 0)).mappable, []);
        let mut bytes = info(15, 32);
        bytes[32..34].copy_from_slice(&1u16.to_ne_bytes());
        bytes[40..44].copy_from_slice(&2u32.to_ne_bytes());
        for (at, value) in [(48, 0u64), (56, 0x1000), (64, 0x3000), (72, 0x1000)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        assert_eq!(parse_region(&bytes).mappable, [(0, 0x1000), (0x3000, 0x1000)]);
        // A chain that points back to itself, and one that leaves the room.
        bytes[36..40].copy_from_slice(&32u32.to_ne_bytes());
        assert_eq!(parse_region(&bytes).mappable.len(), 2);
        assert_eq!(parse_region(&info(15, 0xffff)).mappable, [(0, 0x4000)]);
    }

    #[test]
    fn the_calls_have_the_numbers_of_the_kernel() {
        // From linux/vfio.h: VFIO_TYPE is ';', VFIO_BASE is 100.
        assert_eq!((GET_API_VERSION, DEVICE_SET_IRQS), (0x3b64, 0x3b6e));
    }

    #[test]
    fn a_device_that_died_is_noticed_although_vfio_answers_for_its_identity() {
        for (class, is_there) in [(0x0200_0000, true), (u32::MAX, false)] {
            let device = Device::of_config(0x10d3_8086, class);
            assert_eq!(device.is_present(), is_there, "revision and class {class:#x}");
        }
    }

    #[test]
    fn without_an_iommu_the_refusal_says_so() {
        let empty = tempfile::tempdir().unwrap();
        let error = Device::open(&Root::at(empty.path()), "0000:01:00.0".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("no IOMMU group"), "{error}");
    }
}
