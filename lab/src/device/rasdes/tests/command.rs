//! The `port` commands: every form is understood, everything else is refused with what is wrong.

use super::super::time_based::{State, Stop, Variant};
use super::super::{command::PortCommand, events::Limit};
use super::*;

fn parse(line: &str) -> Result<PortCommand, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    PortCommand::parse(&words).map_err(|err| err.to_string())
}

fn event(select: u16) -> Event {
    Event::new(select).unwrap()
}

#[test]
fn every_form_of_every_command_is_understood() {
    let mut shares = [0; 9];
    (shares[State::L0 as usize], shares[State::L1 as usize], shares[State::TxL0s as usize]) = (75, 20, 5);
    let cases = [
        ("traffic rx 100", PortCommand::Traffic(Direction::Rx, 100)),
        ("traffic tx 0x10", PortCommand::Traffic(Direction::Tx, 16)),
        ("rate tx 0", PortCommand::Rate(Direction::Tx, 0)),
        ("event 0x201 5", PortCommand::Happen(event(0x201), 0, 5)),
        ("event 0x001 5 lane 15", PortCommand::Happen(event(0x001), 15, 5)),
        ("set 0x401 15", PortCommand::Set(event(0x401), 0, 15)),
        ("set 0x207 255", PortCommand::Set(event(0x207), 0, 255)),
        ("set 0x719 0xffffffff", PortCommand::Set(event(0x719), 0, u32::MAX)),
        ("tba-set 0xffffffffffffffff", PortCommand::SetData(u64::MAX)),
        ("states L1=20,TX_L0S=5", PortCommand::States(shares)),
        ("states L0=70,L1=20,TX_L0S=5", PortCommand::States(shares)),
        ("variant old", PortCommand::Variant(Variant::Old)),
        ("variant seed", PortCommand::Variant(Variant::Seed)),
        ("stop zero", PortCommand::Stop(Stop::Zero)),
        ("stop hold", PortCommand::Stop(Stop::Hold)),
        ("limit wrap", PortCommand::Limit(Limit::Wrap)),
        ("limit saturate", PortCommand::Limit(Limit::Saturate)),
        ("width 32", PortCommand::Width(32)),
        ("torn on", PortCommand::Torn(true)),
        ("torn off", PortCommand::Torn(false)),
        ("absent 0x201,0x001", PortCommand::Absent(vec![event(0x201), event(0x001)])),
        ("absent none", PortCommand::Absent(vec![])),
        ("absent-report 0x00,0x23", PortCommand::AbsentReport(vec![0, 0x23])),
        ("absent-report none", PortCommand::AbsentReport(vec![])),
        ("agent every 3", PortCommand::Agent(Some(3))),
        ("agent off", PortCommand::Agent(None)),
        ("firmware 0x201", PortCommand::Firmware(vec![event(0x201)])),
        ("gone", PortCommand::Gone(true)),
        ("back", PortCommand::Gone(false)),
        ("vsec rev 15", PortCommand::VsecRev(15)),
        ("vsec id 0xffff", PortCommand::VsecId(0xffff)),
        ("vsec foreign-first on", PortCommand::ForeignFirst(true)),
        ("vsec loop off", PortCommand::Loop(false)),
        ("link 6 16", PortCommand::Link(6, 16)),
    ];
    for (line, expected) in cases {
        assert_eq!(parse(line), Ok(expected), "{line}");
    }
}

#[test]
fn everything_else_is_refused_and_says_why() {
    let cases = [
        ("", "is missing"),
        ("frobnicate", "`frobnicate` is not traffic, rate, event"),
        ("traffic", "rx or tx is missing"),
        ("traffic up 1", "`up` is not rx or tx"),
        ("traffic rx", "a number is missing"),
        ("traffic rx -1", "`-1` is not a whole number"),
        ("traffic rx +1", "`+1` is not a whole number"),
        ("traffic rx 0x+1", "`0x+1` is not a whole number"),
        ("traffic rx 1 2", "`2` is one word too many"),
        ("rate rx 18446744073709551616", "is not a whole number below 2^64"),
        ("event 201 1", "`201` is not an event"),
        ("event 0x10201 1", "`0x10201` is not an event"),
        ("event 0x208 1", "`0x208` is not an event"),
        ("event 0x201 1 lane 0", "`lane` is not for an event that is common to all lanes"),
        ("event 0x001 1 lane 16", "`16` is not a lane"),
        ("event 0x001 1 lane", "a lane from 0 to 15 is missing"),
        ("event 0x001 1 on 3", "`on` is not `lane L`"),
        ("set 0x001 16", "`16` is not a number below 2^4"),
        ("set 0x201 256", "`256` is not a number below 2^8"),
        ("set 0x70b 0x100000000", "is not a number below 2^32"),
        ("states", "shares of time"),
        ("states L0=90,L1=20", "100 percent or less"),
        ("states L0=256", "`L0=256` is not a state's share"),
        ("states L1=10,L1=10", "`L1=10` is not a state's share, each state once"),
        ("states L3=10", "`L3=10` is not a state's share"),
        ("states L1", "`L1` is not a state's share"),
        ("variant new", "`new` is not seed or old"),
        ("stop both", "`both` is not hold or zero"),
        ("limit none", "`none` is not saturate or wrap"),
        ("width 31", "`31` is not a number of bits"),
        ("width 65", "`65` is not a number of bits"),
        ("torn yes", "`yes` is not on or off"),
        ("absent", "events, or none is missing"),
        ("absent 0x201,", "`` is not an event"),
        ("absent-report 0x0a", "`0x0a` is not a report"),
        ("agent every 0", "`0` is not a distance"),
        ("agent often", "`often` is not `every N` or `off`"),
        ("firmware none", "`none` is not an event"),
        ("gone now", "`now` is one word too many"),
        ("vsec", "rev, id, foreign-first or loop is missing"),
        ("vsec rev 16", "`16` is not a revision"),
        ("vsec id 65536", "`65536` is not a VSEC ID"),
        ("vsec size 3", "`size` is not rev"),
        ("link 7 4", "`7` is not a generation"),
        ("link 5 3", "`3` is not 1, 2, 4, 8 or 16 lanes"),
    ];
    for (line, expected) in cases {
        let refused = parse(line).expect_err(line);
        assert!(refused.contains(expected), "{line:?}: {refused}");
        assert!(refused.starts_with("port: "), "{line:?}: {refused}");
    }
}
