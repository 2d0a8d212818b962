//! What an object declares and a kernel defines: configuration values (`__kconfig`), functions and variables
//! (`__ksym`).
//!
//! They are symbols without a definition. Their types are in sections that exist only in the type information:
//!
//! ```text
//!   DATASEC .kconfig   VAR LINUX_KERNEL_VERSION, VAR CONFIG_HZ     -> a map .kconfig that holds their values
//!   DATASEC .ksyms     FUNC bpf_task_acquire                       -> the FUNC of that name in the target's types
//!                      VAR runqueues: struct rq                    -> the VAR of that name in the target's types
//!                      VAR bpf_link_fops: void                     -> an address
//! ```
//!
//! A weak symbol may be missing: then its configuration value or address is 0, and a call of it must not be reached.

mod config;

use std::collections::HashMap;
use std::sync::Arc;

use skep_abi::{MapDef, MapFlags, MapKind};
use skep_btf::{Btf, Kind};

use crate::elf::{Elf, Place};
use crate::error::Error;
use crate::maps::ObjectMap;
use crate::types::data_sections;
use config::Config;

/// The section of configuration values, and the map that holds them.
const KCONFIG: &str = ".kconfig";
const KSYMS: &str = ".ksyms";

/// Everything that is declared and not defined.
#[derive(Debug, Default)]
pub(crate) struct Externs {
    /// By symbol.
    all: HashMap<u32, Declared>,
    /// The configuration values, in the order of the map.
    pub(crate) config: Vec<Config>,
    /// Bytes that they take.
    pub(crate) config_size: u32,
}

/// A symbol that an object declares and a kernel defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it may be missing.
    pub weak: bool,
    /// What it is.
    pub kind: DeclarationKind,
}

/// What a declared symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclarationKind {
    /// A configuration value (`__kconfig`).
    Config,
    /// A function (`__ksym`).
    Function,
    /// A variable with a type (`__ksym`).
    Variable,
    /// The address of something (`__ksym`, of type `void`).
    Address,
}

/// A declaration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    pub(crate) kind: DeclaredKind,
    /// Whether it may be missing.
    pub(crate) weak: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum DeclaredKind {
    /// The configuration value of that index.
    Config(usize),
    /// A function; its type in the object, of kind `Func`.
    Function(u32),
    /// A variable; its own type in the object.
    Variable(u32),
    /// A variable of type `void`: an address.
    Address,
}

impl Externs {
    /// Whether functions or variables of the host are among them.
    pub(crate) fn names_host(&self) -> bool {
        self.all.values().any(|declared| !matches!(declared.kind, DeclaredKind::Config(_)))
    }

    /// Every declaration, by symbol.
    pub(crate) fn declarations<'a>(&'a self, elf: &'a Elf) -> Vec<Declaration<'a>> {
        let mut symbols: Vec<u32> = self.all.keys().copied().collect();
        symbols.sort_unstable();
        let declaration = |symbol: &u32| {
            let name = elf.symbol_name(elf.symbols.get(*symbol as usize)?).ok()?;
            let Declared { kind, weak } = self.all.get(symbol)?;
            let kind = match kind {
                DeclaredKind::Config(_) => DeclarationKind::Config,
                DeclaredKind::Function(_) => DeclarationKind::Function,
                DeclaredKind::Variable(_) => DeclarationKind::Variable,
                DeclaredKind::Address => DeclarationKind::Address,
            };
            Some(Declaration { name, weak: *weak, kind })
        };
        symbols.iter().filter_map(declaration).collect()
    }

    /// Collects what the types of the two sections say about symbols without a definition.
    pub(crate) fn parse(elf: &Elf, btf: Option<&Btf>) -> Result<Self, Error> {
        let mut externs = Self::default();
        let Some(btf) = btf else { return Ok(externs) };
        let sections = data_sections(btf)?;
        let mut types = HashMap::new();
        for section in [KCONFIG, KSYMS] {
            let variables = sections.get(section).into_iter().flat_map(|ty| ty.variables());
            for variable in variables {
                types.entry(variable.var.name()?).or_insert((section, variable.var));
            }
        }
        if types.is_empty() {
            return Ok(externs);
        }
        let mut config = HashMap::new();
        for (index, symbol) in (0u32..).zip(&elf.symbols) {
            if symbol.place != Place::Undefined || !symbol.exported {
                continue;
            }
            let name = elf.symbol_name(symbol)?;
            let Some((section, ty)) = types.get(name) else { continue };
            let kind = match (*section, ty.kind) {
                (KCONFIG, Kind::Var) => {
                    let index = *config.entry(name).or_insert(externs.config.len());
                    if index == externs.config.len() {
                        externs.config.push(Config::declared(btf, name, ty.target())?);
                    }
                    DeclaredKind::Config(index)
                }
                (KSYMS, Kind::Func) => DeclaredKind::Function(ty.id),
                (KSYMS, Kind::Var) if btf.resolve(ty.target())?.kind == Kind::Void => DeclaredKind::Address,
                (KSYMS, Kind::Var) => DeclaredKind::Variable(ty.target()),
                _ => continue,
            };
            externs.all.insert(index, Declared { kind, weak: symbol.weak });
        }
        externs.config_size = config::place(&mut externs.config)?;
        Ok(externs)
    }

    /// The declaration of the symbol with this number.
    pub(crate) fn declared(&self, symbol: u32) -> Option<Declared> {
        self.all.get(&symbol).copied()
    }
    /// The map of the configuration values, all still unknown; `None` if there are no such values.
    pub(crate) fn config_map(&self) -> Option<ObjectMap> {
        if self.config.is_empty() {
            return None;
        }
        let zeroes: Arc<[u8]> = vec![0; self.config_size as usize].into();
        let def = MapDef {
            flags: MapFlags::RDONLY_PROG,
            frozen: Some(zeroes.clone()),
            ..MapDef::new(KCONFIG, MapKind::Array, 4, self.config_size, 1)
        };
        let variables = self.config.iter().map(|config| config.variable()).collect();
        let variable_bytes = self.config_size;
        Some(ObjectMap { initial: Some(zeroes), variables, variable_bytes, ..ObjectMap::new(def) })
    }

    /// Fills the value of that map from a configuration. Returns for each configuration value whether it is known.
    pub(crate) fn fill(
        &self,
        text: &str,
        release: Option<&str>,
        into: &mut [u8],
    ) -> Result<Vec<bool>, Error> {
        config::fill(&self.config, text, release, into)
    }
}
