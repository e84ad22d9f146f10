//! Single register accesses on the fake backend.

use crate::common::{folder, pciescope, run};

#[test]
fn a_read_prints_the_value_in_the_width_of_the_access() {
    for (width, value) in [(4, "0x5c0e1a7e"), (2, "0x1a7e"), (1, "0x7e"), (8, "0x000000015c0e1a7e")] {
        let ended = run(&format!("reg read 0000:03:00.0 0:0 --width {width} --backend fake")).expect_code(0);
        assert_eq!(ended.stdout, format!("{value}\n"));
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn all_ones_is_printed_and_remarked() {
    let ended = run("reg read 0000:03:00.0 0:0x24 --backend fake").expect_code(0);
    assert_eq!(ended.stdout, "0xffffffff\n");
    assert!(ended.stderr.contains("all-ones"), "{}", ended.stderr);
}

#[test]
fn a_write_prints_nothing() {
    let ended = run("reg write 0000:03:00.0 2:0x10 0xdeadbeef --backend fake").expect_code(0);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
}

#[test]
fn the_log_is_that_of_the_kernel_module() {
    let root = folder("log");
    std::fs::create_dir(root.join("sys")).unwrap();
    let node = root.join("dev/pcilatdriver/0000:03:00.0");
    std::fs::create_dir_all(&node).unwrap();
    std::fs::write(node.join("devreg"), "[12] read 0xd0 = 0x0080e005 rc=0\n").unwrap();
    let ended = pciescope(&["--root", root.to_str().unwrap(), "reg", "log", "03:00.0"]).expect_code(0);
    assert_eq!(ended.stdout, "[12] read 0xd0 = 0x0080e005 rc=0\n");
}
