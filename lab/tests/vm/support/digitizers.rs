//! What the suites of the digitizers share: a guest with the seed's crate of SIS8300 boards, and the boards' own account of what
//! they sampled and moved.

use crate::say;
use std::ops::Deref;

use pciescope_lab::Served;
use pciescope_lab::device::Sis8300;
use pciescope_lab::vm::digitizers::Crate;
use pciescope_lab::vm::{Attachment, Builder, Kernel, Vm};
use serde_json::Value;

use super::guest::Guest;
use super::lab_failed;

/// A board that this process serves.
pub struct Board {
    /// Physical slot; also its serial number.
    pub slot: u16,
    /// Name of its device in QEMU, and of its node.
    pub name: String,
    pub served: Served,
}

impl Board {
    /// Its node in the guest.
    pub fn node(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Tells it something over its control socket.
    pub fn tell(&self, command: &str) -> Value {
        self.served.ask(command).unwrap_or_else(|err| panic!("the lab failed: {command}: {err}"))
    }

    /// What it saw: the truth.
    pub fn ledger(&self) -> Value {
        self.tell("ledger")
    }

    /// A number of the ledger by its path, such as `/dma_read/bytes`.
    pub fn count(&self, path: &str) -> u64 {
        let ledger = self.ledger();
        let found = ledger.pointer(path).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("{}: the ledger has no number at {path}: {ledger}", self.name))
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ledger = self.served.ask("ledger").map_or_else(|err| err.to_string(), |ledger| ledger.to_string());
            say!("the ledger of {}: {}", self.name, ledger.chars().take(3000).collect::<String>());
        }
    }
}

/// A guest with digitizers.
pub struct Digitizers {
    // Dropped in this order: the guest goes before its devices.
    pub vm: Guest,
    pub boards: Vec<Board>,
    _folder: tempfile::TempDir,
}

impl Deref for Digitizers {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.vm
    }
}

impl Digitizers {
    /// Boots with the first `count` boards of the seed's crate behind their switch, and the module. `more` adds to the machine.
    pub fn boot(kernel: Kernel, count: usize, more: impl FnOnce(Builder) -> Builder) -> Digitizers {
        Digitizers::boot_crate(kernel, &Crate::seed(count), |builder| more(builder.module("sis8300")))
    }

    /// Boots with a crate of one's own behind its switch, and no module.
    pub fn boot_crate(kernel: Kernel, boards: &Crate, more: impl FnOnce(Builder) -> Builder) -> Digitizers {
        Digitizers::boot_boards(kernel, boards.behind_switch(), more)
    }

    /// Boots with these boards in their places, and no module.
    pub fn boot_boards(
        kernel: Kernel,
        boards: Vec<(String, Sis8300, Attachment)>,
        more: impl FnOnce(Builder) -> Builder,
    ) -> Digitizers {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut builder = Vm::builder().kernel(kernel);
        let mut served_boards = Vec::new();
        for (name, board, place) in boards {
            let served = Served::spawn(board, folder.path(), &name).unwrap_or_else(|err| lab_failed(err));
            builder = builder.served(&name, &served, place);
            let slot = name.rsplit('-').next().and_then(|slot| slot.parse().ok()).unwrap_or(0);
            served_boards.push(Board { slot, name, served });
        }
        let vm = Guest::boot(more(builder));
        Digitizers { vm, boards: served_boards, _folder: folder }
    }

    /// The board at a slot.
    pub fn board(&self, slot: u16) -> &Board {
        self.boards.iter().find(|board| board.slot == slot).unwrap_or_else(|| panic!("slot {slot} is empty"))
    }

    /// Its address in the guest.
    pub fn address(&self, slot: u16) -> String {
        self.vm.address(&self.board(slot).name)
    }

    /// [`Guest::finish`], without the module.
    pub fn finish(self) {
        self.vm.finish(&["sis8300"]);
    }
}
