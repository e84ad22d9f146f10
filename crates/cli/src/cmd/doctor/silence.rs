//! The findings that the user silenced, and why.

use std::fs;
use std::path::Path;

use anyhow::Context;
use pciescope_core::{Bdf, Evidence, Finding};
use pciescope_hw::doctor;
use pciescope_report::bounded;

use crate::cmd::{Ctx, Refusal};

/// Read always, where it exists.
const CONFIG: &str = "/etc/pciescope/doctor.conf";

/// All silences, those of the command line first.
pub struct Silences(Vec<Silence>);

/// One silence.
#[derive(Debug, PartialEq)]
struct Silence {
    check: String,
    bdf: Option<Bdf>,
    reason: String,
    /// Where it was asked for.
    source: String,
}

impl Silences {
    /// The silences of the command line, of the files named there, and of the machine's own file.
    ///
    /// # Errors
    /// A file that cannot be read, a name that no check has, text that is not an address.
    pub fn read(ctx: &Ctx, typed: &[String], files: &[impl AsRef<Path>]) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for text in typed {
            let (subject, reason) = text.split_once('=').unwrap_or((text, "no reason given"));
            all.push(parse(subject, reason, "--silence".to_owned())?);
        }
        for path in files.iter().map(AsRef::as_ref) {
            let failed = || format!("cannot read {}", path.display());
            let text = bounded::text(fs::File::open(path).with_context(failed)?).with_context(failed)?;
            let text = String::from_utf8(text).with_context(failed)?;
            all.extend(lines(&text, &path.display().to_string())?);
        }
        // Found where the tree is: a recorded one has its own, or none.
        if let Ok(text) = fs::read_to_string(ctx.root.path(CONFIG)) {
            all.extend(lines(&text, CONFIG)?);
        }
        Ok(Silences(all))
    }

    /// Marks a finding that is not wanted, and leaves the reason as its last evidence.
    pub fn apply(&self, finding: &mut Finding) {
        let is_meant = |silence: &&Silence| {
            silence.check == finding.check && (silence.bdf.is_none() || silence.bdf == finding.bdf)
        };
        if let Some(silence) = self.0.iter().find(is_meant) {
            finding.silenced = true;
            finding.evidence.push(Evidence { source: silence.source.clone(), value: silence.reason.clone() });
        }
    }
}

fn lines(text: &str, path: &str) -> anyhow::Result<Vec<Silence>> {
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (subject, reason) = line.split_once(char::is_whitespace).unwrap_or((line, "no reason given"));
        all.push(parse(subject, reason.trim(), format!("{path}:{}", number + 1))?);
    }
    Ok(all)
}

/// `NAME` or `NAME@BDF`.
fn parse(subject: &str, reason: &str, source: String) -> anyhow::Result<Silence> {
    let (name, bdf) = match subject.split_once('@') {
        Some((name, bdf)) => (name, Some(bdf)),
        None => (subject, None),
    };
    let Some(check) = doctor::find(name) else {
        let text = format!("{source}: there is no check {name:?}");
        return Err(Refusal::new(text, "`pciescope doctor --list` shows them all").into());
    };
    let bdf = match bdf.map(str::parse::<Bdf>).transpose() {
        Ok(bdf) => bdf,
        Err(why) => return Err(Refusal::new(format!("{source}: {why}"), "write NAME@DDDD:BB:DD.F").into()),
    };
    if bdf.is_some() && check.is_of_machine() {
        let text = format!("{source}: {name} is about the machine, not about a function");
        return Err(Refusal::new(text, "leave out the address").into());
    }
    Ok(Silence { check: name.to_owned(), bdf, reason: reason.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_an_address_and_a_reason() {
        let all = lines("# why\n\nsmt\naspm@3b:00.0   laptop, stays so\n", "f").unwrap();
        assert_eq!(all[0].reason, "no reason given");
        assert_eq!((all[1].bdf, all[1].reason.as_str()), ("0000:3b:00.0".parse().ok(), "laptop, stays so"));
        assert_eq!(all[1].source, "f:4");
    }

    #[test]
    fn a_silence_that_can_never_match_is_refused() {
        for bad in ["smpt", "aspm@3b", "smt@3b:00.0"] {
            assert!(lines(bad, "f").is_err(), "{bad}");
        }
    }
}
