//! The live page: six files, built into the program. They load only the feed of the same server.
//!
//! Why its charts are its own script: docs/decisions/0002-report-page.md.

use std::sync::LazyLock;

/// One file of the page.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Where it is asked for.
    pub path: &'static str,
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// The whole of it.
    pub body: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page. The first is the page itself.
pub static ASSETS: LazyLock<[Asset; 6]> = LazyLock::new(|| {
    let asset = |path, content_type, body: &str| Asset { path, content_type, body: squeezed(body).leak() };
    [
        asset("/", "text/html; charset=utf-8", include_str!("index.html")),
        asset("/page.css", "text/css; charset=utf-8", &dense(include_str!("page.css"))),
        asset("/known.js", SCRIPT, &dense(include_str!("known.js"))),
        asset("/chart.js", SCRIPT, &dense(include_str!("chart.js"))),
        asset("/topology.js", SCRIPT, &dense(include_str!("topology.js"))),
        asset("/page.js", SCRIPT, &dense(include_str!("page.js"))),
    ]
});

/// A style sheet or script without the blanks that only people need. None of their words has such a sign between blanks.
fn dense(text: &str) -> String {
    const STYLE: [(&str, &str); 5] = [("; }", "}"), (" { ", "{"), (": ", ":"), (", ", ","), ("; ", ";")];
    const CODE: [(&str, &str); 5] = [(" => ", "=>"), (" === ", "==="), (" && ", "&&"), (" || ", "||"), (" = ", "=")];
    let pairs = if text.starts_with("//") { CODE } else { STYLE };
    pairs.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A file without indentation and without lines that are comments: browsers need neither. No text of the page spans lines.
fn squeezed(body: &str) -> String {
    let is_comment = |line: &str| line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/"));
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty() && !is_comment(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The `Content-Security-Policy` of every answer: own files and the own feed only, and in no one's frame.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_weighs_little_and_asks_for_nothing_outside() {
        let weight: usize = ASSETS.iter().map(|asset| asset.body.len()).sum();
        assert!(weight < 48_000, "{weight} bytes");
        for asset in ASSETS.iter() {
            // The name of the SVG language is no address that is asked for.
            let body = asset.body.replace("http://www.w3.org/2000/svg", "");
            assert!(!body.contains("://"), "{} names an address", asset.path);
        }
    }

    #[test]
    fn the_script_sets_text_as_text_only() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
            assert!(ASSETS.iter().all(|asset| !asset.body.contains(word)), "{word}");
        }
    }
}
