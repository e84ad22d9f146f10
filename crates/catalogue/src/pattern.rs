//! Names of PMUs with numbers in them: `uncore_imc_{n}`, `dwc_rootport_{sbdf:x}`.

use std::collections::BTreeMap;

/// A name with fields for numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Number { name: String, base: u32 },
}

impl Pattern {
    /// Parses text with `{name}` for decimal digits and `{name:x}` for hexadecimal ones.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (field, after) = after.split_once('}').ok_or_else(|| format!("{text}: a }} is missing"))?;
            let (name, base) = match field.split_once(':') {
                None => (field, 10),
                Some((name, "x")) => (name, 16),
                Some((_, other)) => return Err(format!("{text}: {other} is no base; x or none")),
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Number { name: name.to_owned(), base });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if parts.is_empty() { Err("a name is empty".to_owned()) } else { Ok(Pattern { parts }) }
    }

    /// The names of its fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Number { name, .. } => Some(name.as_str()),
        })
    }

    /// The numbers in `name`, if all of it is as the pattern says.
    pub(crate) fn numbers(&self, name: &str) -> Option<BTreeMap<String, u64>> {
        let (mut numbers, mut rest) = (BTreeMap::new(), name);
        for part in &self.parts {
            match part {
                Part::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                Part::Number { name, base } => {
                    let end = rest.find(|c: char| !c.is_digit(*base)).unwrap_or(rest.len());
                    numbers.insert(name.clone(), u64::from_str_radix(&rest[..end], *base).ok()?);
                    rest = &rest[end..];
                }
            }
        }
        rest.is_empty().then_some(numbers)
    }
}

/// Bits of a number in a name: `sbdf[8:15]` are bits 8 to 15 of the field `sbdf`, `n` all of the field `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits {
    pub(crate) field: String,
    low: u32,
    high: u32,
}

impl Bits {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Some((field, range)) = text.split_once('[') else {
            return Some(Bits { field: text.to_owned(), low: 0, high: 63 });
        };
        let range = range.strip_suffix(']')?;
        let (low, high) = range.split_once(':').unwrap_or((range, range));
        let (low, high) = (low.parse().ok()?, high.parse().ok()?);
        (low <= high && high < 64).then(|| Bits { field: field.to_owned(), low, high })
    }

    pub(crate) fn of(&self, number: u64) -> u64 {
        number >> self.low & (u64::MAX >> (63 - (self.high - self.low)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_names() {
        let pattern = Pattern::parse("hisi_sccl{sccl}_ddrc{ddrc}").unwrap();
        assert_eq!(pattern.fields().collect::<Vec<_>>(), ["sccl", "ddrc"]);
        let numbers = pattern.numbers("hisi_sccl3_ddrc12").unwrap();
        assert_eq!((numbers["sccl"], numbers["ddrc"]), (3, 12));
        for other in ["hisi_sccl3_ddrc", "hisi_sccl3_ddrc1_0", "hisi_scclx_ddrc1", "Xhisi_sccl3_ddrc1", ""] {
            assert_eq!(pattern.numbers(other), None, "{other}");
        }
        assert_eq!(Pattern::parse("dwc_{at:x}").unwrap().numbers("dwc_b000").unwrap()["at"], 0xb000);
        assert_eq!(Pattern::parse("dwc_{at:x}").unwrap().numbers("dwc_10000000000000000"), None);
        for wrong in ["a_{n", "a_{n:o}", ""] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bits_of_numbers() {
        assert_eq!(Bits::parse("at[8:15]").unwrap().of(0x1_3018), 0x30);
        assert_eq!(Bits::parse("at[30]").unwrap().of(0x4002_1000), 1);
        assert_eq!(Bits::parse("at").unwrap().of(u64::MAX), u64::MAX);
        for wrong in ["at[3:1]", "at[64]", "at[1", "at[x]"] {
            assert_eq!(Bits::parse(wrong), None, "{wrong}");
        }
    }
}
