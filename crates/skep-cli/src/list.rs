//! `skep prog list` and `skep map list`: what is in an object file, without verifying or loading any of it.

use crate::failure::Failure;
use crate::{object, output};
use serde::Serialize;
use skep::abi::{MapDef, ProgramSource};
use skep::isa::{Imm64, Insn};
use skep::{Error, Object, ProgramOptions, Variable};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// BPF object file; `-` is standard input.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// A program, or why it cannot be linked.
#[derive(Default, Serialize)]
struct Program {
    program: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    program_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    sleepable: bool,
    gpl_compatible: bool,
    insns: usize,
    functions: Vec<String>,
    maps: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Map {
    map: String,
    kind: &'static str,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    /// The types of its keys and values, as C writes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<String>,
}

/// Lists programs.
pub(crate) fn programs(args: &Args) -> Result<(), Failure> {
    let object = object::open(&args.object)?;
    let programs: Vec<Program> = object
        .programs()
        .into_iter()
        .map(|name| match object.linked(name, ProgramOptions::default()) {
            Ok(source) => Program::of(&object, source),
            Err(error) => Program::unlinked(name, &error),
        })
        .collect();
    if args.json {
        return output::json(&programs);
    }
    let head = ["program", "type", "insns", "functions", "maps"].map(str::to_owned).to_vec();
    let rows = programs.iter().map(|program| match &program.error {
        Some(error) => vec![program.program.clone(), format!("not linked: {error}")],
        None => vec![
            program.program.clone(),
            program.kind(),
            program.insns.to_string(),
            program.functions.len().to_string(),
            program.maps.join(" "),
        ],
    });
    output::text(&table(std::iter::once(head).chain(rows).collect()))
}

/// Lists maps.
pub(crate) fn maps(args: &Args) -> Result<(), Failure> {
    let object = object::open(&args.object)?;
    let variables = object.variables();
    let maps = object.maps().iter().enumerate();
    let maps: Vec<Map> = maps.map(|(index, def)| Map::of(&object, index, def, &variables)).collect();
    if args.json {
        return output::json(&maps);
    }
    let head = ["map", "kind", "entries", "key", "value"].map(str::to_owned).to_vec();
    let bytes = |ty: &Option<String>, bytes: u32| match (ty, bytes) {
        (_, 0) => "-".to_owned(),
        (Some(ty), bytes) => format!("{ty} ({bytes})"),
        (None, bytes) => format!("{bytes} bytes"),
    };
    let rows = maps.iter().map(|map| {
        let value = match map.variables.is_empty() {
            true => bytes(&map.value, map.value_size),
            false => format!("{} ({})", map.variables.join(" "), map.value_size),
        };
        let key = bytes(&map.key, map.key_size);
        vec![map.map.clone(), map.kind.to_owned(), map.max_entries.to_string(), key, value]
    });
    output::text(&table(std::iter::once(head).chain(rows).collect()))
}

impl Program {
    fn of(object: &Object, source: ProgramSource) -> Self {
        let used = |index: usize| {
            source.insns.iter().any(|insn| match insn {
                Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } => {
                    *map as usize == index
                }
                _ => false,
            })
        };
        let maps = object.maps().iter().enumerate().filter(|(index, _)| used(*index));
        Self {
            program_type: Some(source.program_type.name),
            maps: maps.map(|(_, def)| def.name.clone()).collect(),
            target: source.target,
            sleepable: source.sleepable,
            gpl_compatible: source.gpl_compatible,
            insns: source.insns.len(),
            functions: source.functions.into_iter().map(|function| function.name).collect(),
            program: source.name,
            error: None,
        }
    }

    fn unlinked(name: &str, error: &Error) -> Self {
        Self { program: name.to_owned(), error: Some(error.to_string()), ..Self::default() }
    }

    /// Its type, and what it is attached to.
    fn kind(&self) -> String {
        let kind = self.program_type.unwrap_or_default();
        let sleepable = if self.sleepable { ".s" } else { "" };
        match &self.target {
            Some(target) => format!("{kind}{sleepable} {target}"),
            None => format!("{kind}{sleepable}"),
        }
    }
}

impl Map {
    fn of(object: &Object, index: usize, def: &MapDef, variables: &[Variable]) -> Self {
        let own = variables.iter().filter(|variable| variable.map == index);
        let name = |ty: Option<u32>| object.types()?.type_name(ty?).ok();
        let variables: Vec<String> = own.map(|variable| variable.name.clone()).collect();
        Self {
            map: def.name.clone(),
            kind: def.kind.name(),
            key_size: def.key_size,
            value_size: def.value_size,
            max_entries: def.max_entries,
            flags: def.flags.0,
            key: name(def.key_btf),
            value: name(def.value_btf).filter(|_| variables.is_empty()),
            variables,
        }
    }
}

/// Columns as wide as their widest cell, separated by two spaces.
fn table(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    // The last cell of a row needs no room behind it.
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() > column + 1);
        cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
