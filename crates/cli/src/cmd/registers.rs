//! The one right that the recorder needs, in a process of its own: it opens the configuration space of functions and the
//! kernel's log, to be read, and passes them on. Whether such a file may be read is decided when it is opened.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pciescope_core::Bdf;
use pciescope_hw::watch::Opener;
use pciescope_hw::{Root, pci};
use rustix::fs::OFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Where it is reached.
const SOCKET: &str = "/run/pciescope-watch.sock";
/// What is asked for in place of a function.
const LOG: &str = "log";
/// An address, and the end of the line.
const LONGEST: u64 = 32;
/// The longest wait for an answer; the first one waits until systemd has started the helper.
const PATIENCE: Duration = Duration::from_secs(30);

/// The standard input, which systemd connects with the recorder.
///
/// # Errors
/// When it cannot be duplicated.
pub fn connected() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Answers the recorder until it leaves: each line is the address of a function, or `log`.
///
/// # Errors
/// When it is no socket, or the recorder does not take an answer.
pub fn serve(root: &Root, socket: &UnixStream) -> io::Result<()> {
    let mut lines = BufReader::new(socket);
    loop {
        let mut line = String::new();
        if lines.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let file = open(root, line.trim_end());
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            passed.push(SendAncillaryMessage::ScmRights(&files));
        }
        sendmsg(socket, &[IoSlice::new(b"\n")], &mut passed, SendFlags::NOSIGNAL)?;
    }
}

/// Opens the one file that a line names; nothing else can be asked for.
fn open(root: &Root, line: &str) -> Option<File> {
    let path = match line {
        LOG => "/dev/kmsg".into(),
        address => pci::folder(address.parse::<Bdf>().ok()?).join("config"),
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits() as i32).open(root.path(path)).ok()
}

/// The recorder's end.
#[derive(Debug)]
pub struct Registers(UnixStream);

impl Registers {
    /// Connects where the program runs without the right and the helper is there.
    pub fn connect(root: &Root) -> Option<Registers> {
        if rustix::process::geteuid().is_root() {
            return None;
        }
        let socket = UnixStream::connect(root.path(SOCKET)).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Registers(socket))
    }
}

impl Opener for Registers {
    fn open(&mut self, of: Option<Bdf>) -> Option<File> {
        let line = of.map_or_else(|| LOG.to_owned(), |bdf| bdf.to_string()) + "\n";
        self.0.write_all(line.as_bytes()).ok()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let answer = recvmsg(&self.0, &mut [IoSliceMut::new(&mut [0])], &mut passed, RecvFlags::CMSG_CLOEXEC);
        if answer.is_err() {
            // An answer that comes later would be taken for that of the next question.
            let _ = self.0.shutdown(std::net::Shutdown::Both);
        }
        let files = passed.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        files.map(File::from)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn it_passes_the_configuration_space_of_functions_and_nothing_else() {
        let tree = tempfile::tempdir().unwrap();
        let devices = tree.path().join("sys/bus/pci/devices");
        for (bdf, content) in [("0000:00:01.0", "port"), ("0000:01:00.0", "card")] {
            fs::create_dir_all(devices.join(bdf)).unwrap();
            fs::write(devices.join(bdf).join("config"), content).unwrap();
            fs::write(devices.join(bdf).join("secret"), "secret").unwrap();
        }
        fs::create_dir(devices.join("0000:02:00.0")).unwrap();
        symlink("../0000:00:01.0/secret", devices.join("0000:02:00.0/config")).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        let root = Root::at(tree.path());
        let helper = std::thread::spawn(move || serve(&root, &there));
        let mut registers = Registers(here);
        let mut read = |of: Option<&str>| {
            let file = registers.open(of.map(|bdf| bdf.parse().unwrap()));
            file.map(|file| io::read_to_string(file).unwrap())
        };
        assert_eq!(read(Some("0000:01:00.0")).as_deref(), Some("card"));
        assert_eq!((read(Some("0000:03:00.0")), read(None), read(Some("0000:02:00.0"))), (None, None, None));
        // A card that was changed has another file.
        fs::remove_file(devices.join("0000:01:00.0/config")).unwrap();
        fs::write(devices.join("0000:01:00.0/config"), "new").unwrap();
        assert_eq!(read(Some("0000:01:00.0")).as_deref(), Some("new"));
        fs::create_dir(tree.path().join("dev")).unwrap();
        fs::write(tree.path().join("dev/kmsg"), "log").unwrap();
        assert_eq!(read(None).as_deref(), Some("log"));
        for line in ["0000:00:01.0/../0000:00:01.0/secret", "../../etc/passwd", "/etc/passwd", "", "0000:00:01.0 "] {
            registers.0.write_all(format!("{line}\n").as_bytes()).unwrap();
            // A line that is too long is several questions.
            for _ in 0..1 + line.len() / LONGEST as usize {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut passed = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC;
                recvmsg(&registers.0, &mut [IoSliceMut::new(&mut [0])], &mut passed, flags).unwrap();
                let is_of_port = line.starts_with("0000:00:01.0 ");
                assert_eq!(passed.drain().count(), usize::from(is_of_port), "{line}");
            }
        }
        drop(registers);
        helper.join().unwrap().unwrap();
    }
}
