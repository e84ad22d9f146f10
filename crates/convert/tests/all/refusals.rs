//! What is refused, in which words, and that nothing is written then. And how the instruction set is chosen.

use std::process::Command;

use pciescope_convert::{Conversion, Decimation, Error, Isa, Operation, Sample};

fn cast() -> Conversion {
    Conversion::new(Sample::U16, Operation::Cast).unwrap()
}

fn text(error: impl Into<Option<Error>>) -> String {
    error.into().unwrap().to_string()
}

#[test]
fn formats_that_no_word_holds() {
    let new = |operation| Conversion::new(Sample::U16, operation).err();
    assert_eq!(text(new(Operation::Signed { m: 3, n: 14 })), "Q3.14 has 17 bits; a 16-bit sample holds 1 to 16");
    assert_eq!(new(Operation::Unsigned { m: 0, n: 0 }), Some(Error::Format { m: 0, n: 0 }));
    assert_eq!(new(Operation::Degrees { m: 255, n: 255 }), Some(Error::Format { m: 255, n: 255 }));
}

#[test]
fn factors_that_are_no_numbers() {
    let new = |factor, offset| Conversion::new(Sample::U16, Operation::Scale { factor, offset }).err();
    assert_eq!(text(new(f64::NAN, 0.0)), "factor NaN of the scaling is not a finite number");
    assert_eq!(text(new(1.0, f64::INFINITY)), "offset inf of the scaling is not a finite number");
    assert_eq!(new(1.0, 0.0), None);
}

#[test]
fn decimation_by_nothing() {
    let error = cast().with_decimation(Decimation { offset: 0, factor: 0 }).err();
    assert_eq!(text(error), "decimation factor 0: it is at least 1, which takes every sample");
}

#[test]
fn outputs_that_are_too_short() {
    let mut output = [7f32; 3];
    let error = cast().to_f32(&[1, 2, 3, 4], &mut output);
    assert_eq!(error, Err(Error::Output { need: 4, have: 3 }));
    assert_eq!(text(error.err()), "the output holds 3 values, the conversion gives 4");
    assert_eq!(output, [7.0; 3]);
}

#[test]
fn decimation_counts_as_the_seeds_tool_does() {
    let len = |offset, factor, len| cast().with_decimation(Decimation { offset, factor }).unwrap().output_len(len);
    assert_eq!(len(0, 1, 10), 10);
    assert_eq!(len(0, 4, 10), 2);
    assert_eq!(len(3, 4, 10), 1);
    assert_eq!(len(10, 1, 10), 0);
    assert_eq!(len(11, 1, 10), 0);
    assert_eq!(len(usize::MAX, usize::MAX, 10), 0);
}

#[test]
fn names_of_instruction_sets() {
    for isa in Isa::ALL {
        assert_eq!(isa.name().parse(), Ok(isa));
        assert_eq!(isa.to_string(), isa.name());
    }
    let error = "sse9".parse::<Isa>().err();
    assert_eq!(text(error), "\"sse9\" names no instruction set (known: scalar, avx2, avx512, neon)");
    let elsewhere = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
    assert!(!elsewhere.is_available());
    assert_eq!(cast().with_isa(elsewhere).err(), Some(Error::Unavailable { isa: elsewhere }));
    assert!(text(Error::Unavailable { isa: elsewhere }).contains("(available: scalar"));
}

/// Run again as a program of its own by the test below: the environment belongs to the whole process.
#[test]
fn child() {
    match Conversion::new(Sample::U16, Operation::Cast) {
        Ok(conversion) => println!("isa={}", conversion.isa()),
        Err(error) => println!("isa={error}"),
    }
}

#[test]
fn the_environment_chooses_the_instruction_set() {
    let child = |value: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "refusals::child", "--nocapture"]).env_remove("PCIESCOPE_ISA");
        let output = command.envs(value.map(|value| ("PCIESCOPE_ISA", value))).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|line| Some(line.split_once("isa=")?.1.to_owned())).unwrap()
    };
    let best = Isa::available().last().unwrap().name();
    assert_eq!(child(None), best);
    assert_eq!(child(Some("")), best);
    for isa in Isa::available() {
        assert_eq!(child(Some(isa.name())), isa.name());
        assert_eq!(child(Some(&isa.name().to_uppercase())), isa.name());
    }
    assert!(child(Some("fast")).starts_with("\"fast\" names no instruction set"));
    let elsewhere = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    assert!(child(Some(elsewhere)).starts_with(&format!("{elsewhere} is not available here")));
}
