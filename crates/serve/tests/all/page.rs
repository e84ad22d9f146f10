//! What the live page makes of the feed: its module `known.js` in node, without a browser.

use std::path::Path;
use std::process::Command;

use pciescope_support::tools::is_there;

/// Runs a script after `known.js`, whose names it has in `k`; `None` if there is no node.
fn node(script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page/known.js");
    std::fs::copy(module, folder.path().join("known.mjs")).unwrap();
    let text = format!(
        "globalThis.document = {{ getElementById: () => null }};\nconst k = await import('./known.mjs');\n{script}"
    );
    let path = folder.path().join("test.mjs");
    std::fs::write(&path, text).unwrap();
    if !is_there("node") {
        return None;
    }
    let output = Command::new("node").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// What is an error, and what is idle, comes with the data.
#[test]
fn the_script_counts_the_errors_and_the_traffic_that_the_server_says() {
    let script = "\
const port = { error_count: 7, errors: { bad_tlp: 7, lcrc_error: 7, naks: 7 } };
console.log(k.errorSum({ ports: { a: port } }, 'a'), k.errorSum({ ports: { a: {} } }, 'a'));
k.take({ time_ms: 1e12, seconds: 1, ports: { a: { rx: 900, is_idle: true }, b: { rx: 9000, is_idle: false } } });
console.log(['a', 'b'].map((id) => [k.busy({ id }), k.isIdle({ id })].join()).join(' '));";
    assert!(node(script).is_none_or(|said| said == "7 0\n0,true 9000,false"), "{:?}", node(script));
}

#[test]
fn the_busiest_port_is_that_of_the_most_bytes_in_the_time() {
    let script = "\
[[1, 10], [9, 1], [1, 10], [9, 1]].forEach(([seconds, rx], n) =>
  k.take({ time_ms: 1e12 + n * 1e4, seconds, ports: { a: { rx }, b: { rx: 2 } } }));
console.log([k.busy({ id: 'a' }), k.busy({ id: 'b' })].join(' '));";
    assert!(node(script).is_none_or(|said| said == "1.9 2"), "{:?}", node(script));
}

/// A screen reader reads a cell with the head of its column.
#[test]
fn heads_of_tables_say_what_they_are_of() {
    let page = include_str!("../../src/page/index.html");
    let heads: Vec<&str> = page.split("<th").skip(1).filter(|head| head.starts_with([' ', '>'])).collect();
    assert!(heads.len() > 10 && heads.iter().all(|head| head.split('>').next().unwrap().contains("scope=\"col\"")));
}
