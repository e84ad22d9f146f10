//! Logs of other tools. The first byte says which format; the rest is the log, and what is behind a NUL the workload.

use std::sync::LazyLock;

use pciescope_core::Identity;
use pciescope_report::import::{self, Format};
use pciescope_report::csv;
use pciescope_report::print::terminal;

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::new("import", None));

pub fn run(data: &[u8]) {
    let Some((kind, log)) = data.split_first() else { return };
    let format = match kind % 5 {
        0 => None,
        1 => Some(Format::Interrupt),
        2 => Some(Format::Iomem),
        3 => Some(Format::PerfStat),
        _ => Some(Format::Threads),
    };
    let mut parts = log.splitn(2, |byte| *byte == 0);
    let (log, workload) = (parts.next().unwrap_or_default(), parts.next());
    let beside = workload.map(|text| {
        let path = crate::FOLDER.path().join("workload");
        std::fs::write(&path, text).expect("the folder can be written");
        path
    });
    if let Ok(read) = import::read_beside(&crate::file(log), format, &IDENTITY, beside.as_deref()) {
        let _ = terminal::render(&read.records);
        let mut writer = csv::Writer::with_separator(Vec::new(), b',');
        for record in &read.records {
            let _ = pciescope_core::Sink::put(&mut writer, record);
        }
    }
}
