//! The language of formulas: numbers, `+ - * / ( )`, names of events, metrics and inputs, `sum(...)` and
//! `present(...)`. catalogue/README.md describes it. The units of a formula are checked when it is read. Later it
//! cannot fail; only an input can be missing.

use std::collections::BTreeSet;

use crate::unit::{Dimension, Unit};

/// The answer to an evaluation that asks for a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Input {
    /// Its value: of an event in the event's unit, of an input in that of [`INPUTS`].
    Value(f64),
    /// The PMU does not have such an event. `present(...)` leaves it out.
    Absent,
    /// Not known this time: not opened, or in doubt. Then there is no result.
    Unknown,
}

impl From<Option<f64>> for Input {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Input::Unknown, Input::Value)
    }
}

/// What a formula may name beside events and metrics: name, unit, meaning.
pub const INPUTS: [(&str, &str, &str); 5] = [
    ("seconds", "s", "time over which the events counted"),
    ("link_bytes_per_s", "bytes/s", "payload that the link can carry in one direction at its speed, width and MPS"),
    ("link_lanes", "1", "lanes of the link as negotiated"),
    ("peak_bytes_per_s", "bytes/s", "most that the memory channel can carry at its data rate"),
    ("aux_period", "ps/cycle", "period of the PCIe controller's auxiliary clock; no register tells it"),
];

/// A formula whose names are known and whose units add up. Its value is in base units: bytes, seconds, cycles, one.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    node: Node,
    dimension: Dimension,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Number(f64, Dimension),
    /// A name before it is looked up.
    Name(String),
    /// What a name stands for, and how many base units its unit is.
    Event(String, f64),
    Input(String, f64),
    Negative(Box<Node>),
    Two(char, Box<Node>, Box<Node>),
    Sum(Vec<Node>),
    Present(Vec<Node>),
}

/// What a name in a formula stands for.
pub(crate) enum Meaning<'a> {
    Event(&'a Unit),
    Input(Unit),
    Formula(&'a Formula),
}

impl Formula {
    /// Reads a formula; `meaning` says what its names are.
    pub(crate) fn parse<'a>(text: &str, meaning: &dyn Fn(&str) -> Option<Meaning<'a>>) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("longer than {LONGEST} bytes"));
        }
        let mut parser = Parser { rest: text, depth: 0 };
        let node = parser.sum()?;
        match parser.peek() {
            None => {}
            Some(other) => return Err(format!("{other:?} is not expected here: {:?}", parser.rest)),
        }
        let (node, dimension) = resolve(node, &mut Names { meaning, left: MOST })?;
        Ok(Formula { node, dimension })
    }

    /// Whether it divides anything: then it is no sum of counts.
    pub fn divides(&self) -> bool {
        let mut divides = false;
        walk(&self.node, false, &mut |node, _| divides |= matches!(node, Node::Two('/', ..)));
        divides
    }

    /// What its value measures.
    pub fn dimension(&self) -> Dimension {
        self.dimension
    }

    /// Its value in base units. `None` where something it needs is absent or not known, or where it divides by zero.
    pub fn value(&self, input: &dyn Fn(&str) -> Input) -> Option<f64> {
        value(&self.node, input).filter(|value| value.is_finite())
    }

    /// The events without which it has no value, and those of `present(...)`, of which some may be absent.
    pub(crate) fn events(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut needed, mut optional) = (BTreeSet::new(), BTreeSet::new());
        walk(&self.node, false, &mut |node, is_optional| {
            if let Node::Event(name, _) = node {
                if is_optional {
                    optional.insert(name.clone())
                } else {
                    needed.insert(name.clone())
                };
            }
        });
        (needed, optional)
    }

    /// The inputs that it names.
    pub(crate) fn inputs(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        walk(&self.node, false, &mut |node, _| {
            if let Node::Input(name, _) = node {
                names.insert(name.clone());
            }
        });
        names
    }

    /// Whether it has a value where the PMU has only those events for which `has` is true.
    pub(crate) fn is_possible(&self, has: &dyn Fn(&str) -> bool) -> bool {
        is_known(&self.node, has)
    }
}

fn is_known(node: &Node, has: &dyn Fn(&str) -> bool) -> bool {
    match node {
        Node::Number(..) | Node::Input(..) | Node::Name(_) => true,
        Node::Event(name, _) => has(name),
        Node::Negative(of) => is_known(of, has),
        Node::Two(_, a, b) => is_known(a, has) && is_known(b, has),
        Node::Sum(of) => of.iter().all(|node| is_known(node, has)),
        Node::Present(of) => of.iter().any(|node| is_known(node, has)),
    }
}

fn walk(node: &Node, is_optional: bool, visit: &mut dyn FnMut(&Node, bool)) {
    visit(node, is_optional);
    match node {
        Node::Number(..) | Node::Name(_) | Node::Event(..) | Node::Input(..) => {}
        Node::Negative(of) => walk(of, is_optional, visit),
        Node::Two(_, a, b) => {
            walk(a, is_optional, visit);
            walk(b, is_optional, visit);
        }
        Node::Sum(of) => of.iter().for_each(|node| walk(node, is_optional, visit)),
        Node::Present(of) => of.iter().for_each(|node| walk(node, true, visit)),
    }
}

fn value(node: &Node, input: &dyn Fn(&str) -> Input) -> Option<f64> {
    Some(match node {
        Node::Number(number, _) => *number,
        Node::Name(_) => return None,
        Node::Event(name, factor) | Node::Input(name, factor) => match input(name) {
            Input::Value(value) => value * factor,
            Input::Absent | Input::Unknown => return None,
        },
        Node::Negative(of) => -value(of, input)?,
        Node::Two(how, a, b) => {
            let (a, b) = (value(a, input)?, value(b, input)?);
            match how {
                '+' => a + b,
                '-' => a - b,
                '*' => a * b,
                _ if b == 0.0 => return None,
                _ => a / b,
            }
        }
        Node::Sum(of) => of.iter().map(|node| value(node, input)).sum::<Option<f64>>()?,
        Node::Present(of) => {
            let is_absent = |node: &&Node| matches!(node, Node::Event(name, _) if input(name) == Input::Absent);
            let there: Vec<_> = of.iter().filter(|node| !is_absent(node)).collect();
            if there.is_empty() {
                return None;
            }
            there.into_iter().map(|node| value(node, input)).sum::<Option<f64>>()?
        }
    })
}

/// What names mean, and how many terms may still be written out.
struct Names<'m, 'a> {
    meaning: &'m dyn Fn(&str) -> Option<Meaning<'a>>,
    left: usize,
}

impl<'a> Names<'_, 'a> {
    /// What a name means. A metric is written out, and its terms count: metrics of metrics would grow without a bound.
    fn look_up(&mut self, name: &str) -> Result<Option<Meaning<'a>>, String> {
        let meaning = (self.meaning)(name);
        let mut terms = 1;
        if let Some(Meaning::Formula(formula)) = &meaning {
            walk(&formula.node, false, &mut |_, _| terms += 1);
        }
        self.left = self
            .left
            .checked_sub(terms)
            .ok_or_else(|| format!("{name}: more than {MOST} terms where the metrics in it are written out"))?;
        Ok(meaning)
    }
}

/// Looks up the names and adds up the units.
fn resolve(node: Node, names: &mut Names<'_, '_>) -> Result<(Node, Dimension), String> {
    Ok(match node {
        Node::Number(number, dimension) => (Node::Number(number, dimension), dimension),
        Node::Name(name) => match names.look_up(&name)? {
            Some(Meaning::Event(unit)) => (Node::Event(name, unit.factor), unit.dimension),
            Some(Meaning::Input(unit)) => (Node::Input(name, unit.factor), unit.dimension),
            Some(Meaning::Formula(formula)) => (formula.node.clone(), formula.dimension),
            None => return Err(format!("{name} is no event, no metric before this one and no input")),
        },
        Node::Event(..) | Node::Input(..) => return Err("a name is looked up twice".to_owned()),
        Node::Negative(of) => {
            let (of, dimension) = resolve(*of, names)?;
            (Node::Negative(Box::new(of)), dimension)
        }
        Node::Two(how, a, b) => {
            let ((a, of_a), (b, of_b)) = (resolve(*a, names)?, resolve(*b, names)?);
            let dimension = match how {
                '*' => of_a.times(of_b),
                '/' => of_a.times(of_b.inverse()),
                _ if of_a == of_b => of_a,
                _ => return Err(format!("{of_a} {how} {of_b} does not add up")),
            };
            (Node::Two(how, Box::new(a), Box::new(b)), dimension)
        }
        Node::Sum(of) => {
            let (of, dimension) = resolve_all(of, names)?;
            (Node::Sum(of), dimension)
        }
        Node::Present(of) => {
            let (of, dimension) = resolve_all(of, names)?;
            if !of.iter().all(|node| matches!(node, Node::Event(..))) {
                return Err("present(...) takes names of events only".to_owned());
            }
            (Node::Present(of), dimension)
        }
    })
}

fn resolve_all(nodes: Vec<Node>, names: &mut Names<'_, '_>) -> Result<(Vec<Node>, Dimension), String> {
    let (mut all, mut dimension) = (Vec::new(), None);
    for node in nodes {
        let (node, of) = resolve(node, names)?;
        if let Some(before) = dimension.filter(|before| *before != of) {
            return Err(format!("{before} + {of} does not add up"));
        }
        dimension = Some(of);
        all.push(node);
    }
    Ok((all, dimension.unwrap_or_default()))
}

/// How deep parentheses may go, and how long a formula may be: a file is data, and data must not be able to exhaust the
/// stack.
const DEEPEST: u32 = 32;
const LONGEST: usize = 4096;
/// How many terms a formula may have once the metrics in it are written out. The longest that is built in has some 40.
const MOST: usize = 4096;

struct Parser<'t> {
    rest: &'t str,
    depth: u32,
}

impl<'t> Parser<'t> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Takes the next character if it is one of `these`.
    fn take(&mut self, these: &[char]) -> Option<char> {
        let next = self.peek().filter(|next| these.contains(next))?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn must(&mut self, this: char) -> Result<(), String> {
        self.take(&[this]).map(drop).ok_or_else(|| format!("{this:?} is missing before {:?}", self.rest))
    }

    fn while_is(&mut self, is: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|next| !is(next)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn sum(&mut self) -> Result<Node, String> {
        let mut node = self.product()?;
        while let Some(how) = self.take(&['+', '-']) {
            node = Node::Two(how, Box::new(node), Box::new(self.product()?));
        }
        Ok(node)
    }

    fn product(&mut self) -> Result<Node, String> {
        let mut node = self.single()?;
        while let Some(how) = self.take(&['*', '/']) {
            node = Node::Two(how, Box::new(node), Box::new(self.single()?));
        }
        Ok(node)
    }

    fn single(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("more than {DEEPEST} parentheses deep"));
        }
        let node = match self.peek() {
            None => Err("the formula ends too early".to_owned()),
            Some('-') => {
                self.must('-')?;
                Ok(Node::Negative(Box::new(self.single()?)))
            }
            Some('(') => {
                self.must('(')?;
                let node = self.sum()?;
                self.must(')')?;
                Ok(node)
            }
            Some(first) if first.is_ascii_digit() => self.number(),
            Some(first) if first.is_ascii_alphabetic() || first == '_' => self.name(),
            Some(other) => Err(format!("{other:?} is not expected here: {:?}", self.rest)),
        };
        self.depth -= 1;
        node
    }

    /// `64`, `0.5`, `1e6`, and with a unit `32[bytes/cycle]`.
    fn number(&mut self) -> Result<Node, String> {
        let text = self.while_is(|c| c.is_ascii_alphanumeric() || c == '.');
        let number: f64 = text.parse().map_err(|_| format!("{text} is not a number"))?;
        if self.take(&['[']).is_none() {
            return Ok(Node::Number(number, Dimension::default()));
        }
        let text = self.while_is(|c| c != ']');
        self.must(']')?;
        let unit = Unit::parse(text).ok_or_else(|| format!("{text} is not a unit"))?;
        Ok(Node::Number(number * unit.factor, unit.dimension))
    }

    fn name(&mut self) -> Result<Node, String> {
        let name = self.while_is(|c| c.is_ascii_alphanumeric() || c == '_');
        if self.take(&['(']).is_none() {
            return Ok(Node::Name(name.to_owned()));
        }
        let mut of = vec![self.sum()?];
        while self.take(&[',']).is_some() {
            of.push(self.sum()?);
        }
        self.must(')')?;
        match name {
            "sum" => Ok(Node::Sum(of)),
            "present" => Ok(Node::Present(of)),
            other => Err(format!("there is no function {other}; there are sum and present")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Formula, String> {
        let bytes = Unit::parse("bytes").unwrap();
        let cycles = Unit::parse("cycles").unwrap();
        let period = Unit::parse("ps/cycle").unwrap();
        Formula::parse(text, &|name| match name {
            "rx" | "tx" => Some(Meaning::Event(&bytes)),
            "l0" => Some(Meaning::Event(&cycles)),
            "period" => Some(Meaning::Event(&period)),
            "seconds" => Some(Meaning::Input(Unit::parse("s").unwrap())),
            _ => None,
        })
    }

    fn inputs(name: &str) -> Input {
        match name {
            "rx" => Input::Value(600.0),
            "l0" => Input::Value(1000.0),
            "period" => Input::Value(2000.0),
            "seconds" => Input::Value(2.0),
            "tx" => Input::Absent,
            _ => Input::Unknown,
        }
    }

    /// Each metric names the one before twice: 2 kB of text would become gigabytes of terms.
    #[test]
    fn metrics_of_metrics_cannot_grow_without_a_bound() {
        let mut last = parse("1").unwrap();
        let mut refused = None;
        for _ in 0..40 {
            let next = Formula::parse("m + m", &|name| (name == "m").then_some(Meaning::Formula(&last)));
            match next {
                Ok(formula) => last = formula,
                Err(text) => refused = Some(text),
            }
        }
        let text = refused.expect("it grows without a bound");
        assert!(text.contains("more than 4096 terms"), "{text}");
    }

    #[test]
    fn values_and_dimensions() {
        for (text, dimension, expected) in [
            ("1 + 2 * 3 - 4 / 2", "1", Some(5.0)),
            ("(1 + 2) * -3", "1", Some(-9.0)),
            ("rx / seconds", "bytes/s", Some(300.0)),
            ("l0 * period / seconds", "1", Some(1e-6)),
            ("l0 / seconds * 32[bytes/cycle]", "bytes/s", Some(16000.0)),
            ("rx - 100[B]", "bytes", Some(500.0)),
            ("tx / seconds", "bytes/s", None),
            ("sum(rx, tx)", "bytes", None),
            ("present(rx, tx)", "bytes", Some(600.0)),
            ("present(tx)", "bytes", None),
            ("rx / (rx - rx)", "1", None),
            ("1e3 * 0.5", "1", Some(500.0)),
        ] {
            let formula = parse(text).unwrap();
            assert_eq!(formula.dimension().to_string(), dimension, "{text}");
            match (formula.value(&inputs), expected) {
                (Some(value), Some(expected)) => assert!((value - expected).abs() < 1e-9, "{text}: {value}"),
                (value, expected) => assert_eq!(value, expected, "{text}"),
            }
        }
    }

    #[test]
    fn unknown_is_not_absent() {
        let formula = parse("present(rx, tx)").unwrap();
        assert_eq!(formula.value(&|name| if name == "rx" { Input::Value(1.0) } else { Input::Unknown }), None);
        assert!(formula.is_possible(&|name| name == "rx") && !formula.is_possible(&|_| false));
        assert!(!parse("sum(rx, tx)").unwrap().is_possible(&|name| name == "rx"));
    }

    #[test]
    fn what_is_refused_and_why() {
        let long = format!("1{}", " + 1".repeat(2000));
        let deep = format!("{}1{}", "(".repeat(40), ")".repeat(40));
        for (text, why) in [
            ("", "ends too early"),
            ("rx +", "ends too early"),
            ("rx + seconds", "bytes + s does not add up"),
            ("sum(rx, seconds)", "bytes + s does not add up"),
            ("rx - 1", "bytes - 1 does not add up"),
            ("rxx / seconds", "rxx is no event"),
            ("(rx", "')' is missing"),
            ("rx rx", "not expected here"),
            ("rx ^ 2", "not expected here"),
            ("max(rx)", "no function max"),
            ("present(rx + rx)", "names of events only"),
            ("2[furlong]", "not a unit"),
            ("2x", "not a number"),
            (deep.as_str(), "parentheses deep"),
            (long.as_str(), "longer than 4096 bytes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
