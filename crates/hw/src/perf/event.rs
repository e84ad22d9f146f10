//! An event of a PMU in perf's syntax, and what of it goes into perf_event_attr.

use super::{Error, Pmu};

/// `config`, `config1`, `config2` and `config3` of perf_event_attr.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Config(pub [u64; 4]);

/// An event that can be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The PMU's name.
    pub pmu: String,
    /// What stands between the slashes: `rx_pcie_tlp_data_payload`, `decode_error,lane=3`, `config=0x80`.
    pub terms: String,
    /// What the kernel is to be asked for.
    pub config: Config,
    /// What one count is in [`Event::unit`], from the file `events/NAME.scale`.
    pub scale: Option<f64>,
    /// The unit of a scaled count, from the file `events/NAME.unit`: `B`, `MiB`.
    pub unit: Option<String>,
    /// Whether the value is a state and not a sum (file `events/NAME.snapshot`): no difference is taken of it.
    pub is_snapshot: bool,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/", self.pmu, self.terms)
    }
}

/// How a term of an event is put.
enum Term<'t> {
    Name(&'t str),
    Value(&'t str, &'t str),
}

/// Splits `a,b=1`; a term that is empty is refused by whom it is handed to.
fn terms(text: &str) -> impl Iterator<Item = Term<'_>> {
    text.split(',').map(|term| match term.split_once('=') {
        Some((name, value)) => Term::Value(name.trim(), value.trim()),
        None => Term::Name(term.trim()),
    })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

impl Pmu {
    /// What to ask the kernel for to count an event of this PMU, in perf's syntax: names of `events/`, parameters of
    /// `format/` and the raw words, separated by commas. Later terms override earlier ones.
    ///
    /// # Errors
    /// [`Error::Term`], with what is wrong and what there is instead; [`Error::Parameter`] where an event needs one that
    /// was not given.
    pub fn event(&self, text: &str) -> Result<Event, Error> {
        let mut event = Event {
            pmu: self.name.clone(),
            terms: text.to_owned(),
            config: Config::default(),
            scale: None,
            unit: None,
            is_snapshot: false,
        };
        let mut open: Vec<&str> = Vec::new();
        for term in terms(text) {
            match term {
                Term::Name(name) => match self.events.get(name) {
                    Some(known) => {
                        event.scale = known.scale;
                        event.unit.clone_from(&known.unit);
                        event.is_snapshot = known.is_snapshot;
                        for term in terms(&known.terms) {
                            match term {
                                Term::Name(flag) => self.put(&mut event, flag, "1")?,
                                Term::Value(parameter, "?") => open.push(parameter),
                                Term::Value(parameter, value) => self.put(&mut event, parameter, value)?,
                            }
                        }
                    }
                    None if self.formats.contains_key(name) => self.put(&mut event, name, "1")?,
                    None => return Err(self.unknown(text, name)),
                },
                Term::Value(name, value) => {
                    open.retain(|parameter| *parameter != name);
                    self.put(&mut event, name, value)?;
                }
            }
        }
        match open.first() {
            Some(parameter) => Err(Error::Parameter {
                pmu: self.name.clone(),
                terms: text.to_owned(),
                parameter: (*parameter).to_owned(),
            }),
            None => Ok(event),
        }
    }

    /// One parameter with its value.
    fn put(&self, event: &mut Event, name: &str, value: &str) -> Result<(), Error> {
        let refuse = |why: String| Error::Term { pmu: self.name.clone(), terms: event.terms.clone(), why };
        let Some(number) = number(value) else {
            return Err(refuse(format!("{name}={value}: not a number")));
        };
        let word = ["config", "config1", "config2", "config3"].iter().position(|word| *word == name);
        if let Some(field) = self.formats.get(name) {
            if !field.set(&mut event.config, number) {
                return Err(refuse(format!("{name}={value} has more than {} bits", field.bits())));
            }
        } else if let Some(word) = word {
            event.config.0[word] = number;
        } else {
            return Err(self.unknown(&event.terms, name));
        }
        Ok(())
    }

    fn unknown(&self, terms: &str, name: &str) -> Error {
        Error::NoEvent { pmu: self.name.clone(), terms: terms.to_owned(), name: name.to_owned() }
    }
}
