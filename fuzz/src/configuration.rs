//! sysfs of a function: its configuration space, and its text files by a byte each in front of their text.

use std::path::Path;

use pciescope_hw::{Root, check, environment, inventory, pci, registers};

const FILES: [&str; 12] = [
    "class",
    "vendor",
    "device",
    "resource",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "numa_node",
    "irq",
    "enable",
    "aer_dev_correctable",
    "local_cpulist",
];

pub fn run(data: &[u8]) {
    let Some((split, rest)) = data.split_first() else { return };
    let (space, texts) = rest.split_at(rest.len().min(usize::from(*split) * 16));
    let function = crate::FOLDER.path().join("sys/bus/pci/devices/0000:03:00.0");
    std::fs::create_dir_all(&function).expect("the folder can be written");
    let put = |file: &str, bytes: &[u8]| std::fs::write(function.join(file), bytes).expect("the folder can be written");
    put("config", space);
    let mut texts = texts.split(|byte| *byte == 0xff);
    for file in FILES {
        put(file, texts.next().unwrap_or(b"0x010802\n"));
    }
    let root = Root::at(Path::new(crate::FOLDER.path()));
    let functions = pci::functions(&root).all;
    let environment = environment::read(&root);
    for function in &functions {
        let _ = registers::safe_target(function);
        let _ = registers::candidate(function);
        let _ = check::function_warnings(&root, &environment, function);
    }
    let _ = (inventory::read(&root, &[]), inventory::endpoints(&root));
}
