//! The pictures of README.md: `make pictures` runs this with records of latencies and the folder. The live page
//! shows the sample that the program has. Each comes in light and dark, for GitHub shows the one that fits.
#![allow(clippy::unwrap_used)] // a tool of this repository, run by hand: a panic says enough

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pciescope_browser_tests::{Browser, pciescope, program};

/// What fits beside each other in a README, in CSS pixels.
const SIZE: (u32, u32) = (1080, 760);

/// `pciescope serve`, ended when dropped.
struct Serve(Child);

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server on records and gives the address that it says.
fn serve(records: &str) -> (Serve, String) {
    let arguments = ["serve", "--replay", records, "-I", "2s", "--listen", "127.0.0.1:0"];
    let mut child = Command::new(program()).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("http://")).expect("serve says its address");
    std::thread::spawn(move || lines.for_each(drop));
    let from = said.find("http://").unwrap();
    let address = said[from..].split_whitespace().next().unwrap().to_owned();
    (Serve(child), address)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [latencies, folder] = arguments.as_slice() else {
        panic!("pictures: say records of latencies, and the folder");
    };
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let page = scratch.path().join("report.html");
    pciescope(&["report", latencies, "-o", page.to_str().unwrap()]);

    let browser = Browser::start();
    browser.size(SIZE);
    for (is_dark, name) in [(false, "light"), (true, "dark")] {
        browser.media(is_dark, false);
        browser.open(&format!("file://{}", page.display()));
        browser.wait("document.readyState === 'complete'");
        browser.picture(&folder.join(format!("report-{name}.webp")));
    }
    let (_serve, address) = serve("sample");
    browser.media(false, false);
    browser.open(&address);
    browser.wait("document.getElementById('state').textContent === 'replay ended'");
    for (is_dark, name) in [(false, "light"), (true, "dark")] {
        browser.media(is_dark, false);
        browser.picture(&folder.join(format!("live-{name}.webp")));
    }
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        println!("{}: {} bytes", entry.path().display(), entry.metadata().unwrap().len());
    }
}
