//! The live page: five files, built into the program, that ask for nothing but the feed beside them.
//!
//! Why its charts are its own script: docs/decisions/0002-report-page.md.

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
pub const ASSETS: [Asset; 5] = [
    Asset { path: "/", content_type: "text/html; charset=utf-8", body: include_str!("index.html") },
    Asset { path: "/page.css", content_type: "text/css; charset=utf-8", body: include_str!("page.css") },
    Asset { path: "/known.js", content_type: SCRIPT, body: include_str!("known.js") },
    Asset { path: "/chart.js", content_type: SCRIPT, body: include_str!("chart.js") },
    Asset { path: "/page.js", content_type: SCRIPT, body: include_str!("page.js") },
];

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
        for asset in ASSETS {
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
