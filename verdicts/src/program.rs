//! Assembles an entry's text into instructions and functions.

use std::collections::BTreeMap;

use skep_abi::{Function, LINUX};
use skep_isa::{CallTarget, Imm64, Insn, assemble};

use crate::btf::own_types;
use crate::entry::{Entry, Trouble};
use crate::function::Argument;
use crate::section::{STRUCT, Section};

/// The instructions of an entry.
#[derive(Clone, Debug)]
pub struct Program {
    /// One element per slot. Maps are indices into the entry's list; the kernel's functions and variables are indices
    /// into [`Program::symbols`].
    pub insns: Vec<Insn>,
    /// The program and its functions in ascending order.
    pub functions: Vec<Function>,
    /// Names of the kernel's functions and variables.
    pub symbols: Vec<String>,
}

impl Program {
    /// Assembles an entry.
    ///
    /// # Errors
    ///
    /// The first invalid line, counted from the start of the file.
    pub fn of(entry: &Entry) -> Result<Self, Trouble> {
        let mut symbols = Vec::new();
        let text = numbered(entry, &mut symbols)?;
        let in_file = |error: skep_isa::AssembleError| {
            let line = (entry.text_line + error.line).saturating_sub(1);
            Trouble::new(line, error.problem.to_string())
        };
        let insns = assemble(&text).map_err(in_file)?;
        let mut starts = BTreeMap::from([(0, ("main".to_owned(), true))]);
        for (slot, insn) in insns.iter().enumerate() {
            let distance = match insn {
                Insn::Call { target: CallTarget::Local(distance) } => *distance,
                Insn::LoadImm64 { value: Imm64::Function(distance), .. } => *distance,
                _ => continue,
            };
            if let Ok(start) = u32::try_from(slot as i64 + 1 + i64::from(distance)) {
                starts.entry(start).or_insert_with(|| (format!("f{start}"), false));
            }
        }
        for line in &entry.functions {
            // A call of the label after the program makes the assembler compute the label's slot.
            let probe = assemble(&format!("{text}\ncall {}", line.name)).map_err(in_file)?;
            if let Some(Insn::Call { target: CallTarget::Local(distance) }) = probe.last() {
                let start = probe.len() as i64 + i64::from(*distance);
                if let Ok(start) = u32::try_from(start) {
                    starts.insert(start, (line.name.clone(), line.global || start == 0));
                }
            }
        }
        let functions = starts.into_iter().map(|(start, (name, global))| Function::new(name, start, global));
        Ok(Self { functions: functions.collect(), insns, symbols })
    }
}

/// Names of the kernel's types, functions and variables that an entry refers to.
///
/// # Errors
///
/// The entry has an error.
pub fn kernel_names(entry: &Entry) -> Result<Vec<String>, Trouble> {
    let mut names = Program::of(entry)?.symbols;
    if let Some(target) = Section::of(&entry.section).and_then(|section| section.target) {
        if let Some(object) = target.name.strip_prefix("bpf_iter_") {
            names.push(format!("bpf_iter__{object}"));
        }
        match target.name.split_once('.').filter(|_| target.kind == STRUCT) {
            Some((of, _)) => names.push(of.to_owned()),
            None => names.push(target.name),
        }
    }
    let fields = entry.maps.iter().flat_map(|map| &map.fields);
    let fields = fields.chain(entry.structs.iter().flat_map(|own| &own.fields));
    let own = |name: &str| entry.structs.iter().any(|own| own.name == name);
    names.extend(fields.filter_map(|field| field.target()).filter(|name| !own(name)).map(str::to_owned));
    let arguments = entry.functions.iter().flat_map(|line| &line.arguments);
    names.extend(arguments.filter_map(|(argument, _)| match argument {
        Argument::Struct(name) => Some(name.clone()),
        _ => None,
    }));
    Ok(names)
}

/// The text with the names of maps, helpers and kernel symbols replaced by numbers.
fn numbered(entry: &Entry, symbols: &mut Vec<String>) -> Result<String, Trouble> {
    let mut text = String::new();
    for (index, line) in entry.text.lines().enumerate() {
        let trouble = |problem: String| Trouble::new(entry.text_line + index, problem);
        let mut line = line.to_owned();
        for (name, id) in own_types(entry) {
            line = line.replace(&format!("type[{name}]"), &id.to_string());
        }
        let line = bracketed(&line, |word, name| match word {
            "map" | "map_value" => match entry.maps.iter().position(|map| map.def.name == name) {
                Some(map) => Ok(Some(format!("{name}#{map}"))),
                None => Err(trouble(format!("the entry has no map {name}"))),
            },
            "kfunc" | "var" => {
                let known = symbols.iter().position(|symbol| symbol == name);
                let symbol = known.unwrap_or_else(|| {
                    symbols.push(name.to_owned());
                    symbols.len() - 1
                });
                Ok(Some(if word == "var" { symbol.to_string() } else { format!("{name}#{symbol}") }))
            }
            _ => Ok(None),
        })?;
        text.push_str(&helper_number(&line));
        text.push('\n');
    }
    Ok(text)
}

/// The line with each name in brackets replaced by `replace`, which receives the word before the bracket and the
/// name.
fn bracketed(
    line: &str,
    mut replace: impl FnMut(&str, &str) -> Result<Option<String>, Trouble>,
) -> Result<String, Trouble> {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        let word = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("");
        let length = after.find(|c: char| !c.is_ascii_alphanumeric() && !"_.$".contains(c));
        let (name, tail) = after.split_at(length.unwrap_or(after.len()));
        let is_name =
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && tail.starts_with(']');
        let replaced = if is_name { replace(word, name)? } else { None };
        out.push_str(before);
        out.push('[');
        out.push_str(replaced.as_deref().unwrap_or(name));
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

/// `call bpf_ktime_get_ns` with the helper's number.
fn helper_number(line: &str) -> String {
    let name = line.trim().split(['/', ';', '#']).next().unwrap_or("").trim();
    let helper =
        name.strip_prefix("call bpf_").and_then(|name| LINUX.iter().find(|proto| proto.name == name));
    match helper {
        Some(proto) if !line.contains('#') => line.replacen(name, &format!("{name}#{}", proto.id), 1),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries;

    fn program(text: &str) -> Result<Program, Trouble> {
        let head =
            "== x\ntype: xdp\nmap: a array 4 8 1\nmap: m hash 4 8 1\nfunc: g global int(int)\ninsns:\n";
        Program::of(&entries(&format!("{head}{text}")).unwrap()[0])
    }

    #[test]
    fn maps_helpers_and_kernel_functions_are_named() {
        let program = program(
            "r1 = map[m] ll\nr1 = map_value[m]+4 ll\ncall bpf_ktime_get_ns\ncall kfunc[f]\n\
             r1 = var[v] ll\ncall kfunc[f]\ng:\nexit",
        )
        .unwrap();
        let plain = assemble(
            "r1 = map[1] ll\nr1 = map_value[1]+4 ll\ncall 5\ncall kfunc[0]\nr1 = var[1] ll\ncall kfunc[0]\nexit",
        );
        assert_eq!(program.insns, plain.unwrap());
        assert_eq!(program.symbols, ["f", "v"]);
    }

    #[test]
    fn functions_begin_at_call_targets_and_declared_labels() {
        let program = program("call s\ncall g\nexit\ns:\nexit\ng:\nexit").unwrap();
        let functions: Vec<_> =
            program.functions.iter().map(|f| (f.name.as_str(), f.start, f.global)).collect();
        assert_eq!(functions, [("main", 0, true), ("f3", 3, false), ("g", 4, true)]);
    }

    #[test]
    fn errors_name_the_line_of_the_file() {
        assert_eq!(program("g:\nexit\nr1 = map[x] ll").unwrap_err().line, 9);
        assert_eq!(program("g:\nr1 += \nexit").unwrap_err().line, 8);
    }
}
