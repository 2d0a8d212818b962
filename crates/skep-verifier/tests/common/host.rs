//! Programs that refer to the host's types: those of `tests/data/host.btf`.

use super::from_insns;
use skep_abi::Section;
use skep_btf::{Btf, Kind};
use skep_verifier::{Code, Config, Refusal, Verified, verify};

/// The types of a host that does not exist.
pub(crate) fn types() -> Btf {
    let bytes: &[u8] = include_bytes!("../data/host.btf");
    Btf::parse(bytes).expect("the committed types are sound")
}

/// Replaces names by the BTF ids of the host's types, functions and variables: `call @bpf_task_acquire`,
/// `var[@jiffies]`, `r2 = @task_struct` for the id of a structure.
pub(crate) fn with_numbers(btf: &Btf, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, after) = rest.split_at(at);
        let name = after[1..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("");
        let find = |kind| btf.find(name, kind);
        out.push_str(before);
        match find(Kind::Func) {
            Some(id) if before.ends_with("call ") => out.push_str(&format!("kfunc[{id}]")),
            other => {
                let id = other.or(find(Kind::Var)).or(find(Kind::Struct));
                out.push_str(&id.unwrap_or_else(|| panic!("the host has no {name}")).to_string());
            }
        }
        rest = &after[1 + name.len()..];
    }
    out.push_str(rest);
    out
}

/// The verifier's verdict on a program of that section.
pub(crate) fn check(section: &str, text: &str) -> Result<Verified, Box<Refusal>> {
    check_with(section, text, Some(&types()))
}

pub(crate) fn check_with(section: &str, text: &str, btf: Option<&Btf>) -> Result<Verified, Box<Refusal>> {
    let text = with_numbers(&types(), text);
    let insns = skep_isa::assemble(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let parsed = Section::parse(section).unwrap_or_else(|| panic!("no section {section}"));
    let mut program = from_insns(parsed.kind, insns);
    program.source.sleepable = parsed.sleepable;
    program.source.target = parsed.target.map(str::to_owned);
    verify(program, &Config { btf, ..Config::default() })
}

#[track_caller]
pub(crate) fn accepted(section: &str, text: &str) -> Verified {
    match check(section, text) {
        Ok(verified) => verified,
        Err(refusal) => panic!("{refusal}\n{text}"),
    }
}

/// Asserts a refusal with that code and that phrase in its one-line text.
#[track_caller]
pub(crate) fn refused(section: &str, text: &str, code: Code, phrase: &str) {
    match check(section, text) {
        Ok(_) => panic!("accepted\n{text}"),
        Err(refusal) => {
            let line = refusal.to_string();
            assert_eq!(refusal.code, code, "{line}\n{text}");
            assert!(line.contains(phrase), "no {phrase:?} in {line:?}\n{text}");
        }
    }
}
