//! Finds the declared symbols in a target, each once, when a program is linked.

use std::collections::HashMap;

use skep_abi::{Extern, ExternKind};
use skep_btf::{Kind, essential_name};

use crate::co_re;
use crate::error::Error;
use crate::externs::{Declared, DeclaredKind};
use crate::parsed::Parsed;

use super::LinkOptions;

/// Used for unknown addresses: no process or kernel has anything there.
const NOWHERE: u64 = 0xffff_0000_0000_0000;

/// The symbols of a program.
pub(crate) struct Symbols<'a> {
    object: &'a Parsed,
    /// By configuration value: whether it is known.
    config: &'a [bool],
    options: LinkOptions<'a>,
    /// Symbols that were found, by number.
    found: HashMap<u32, Option<ExternKind>>,
    used: Vec<Extern>,
}

/// Where a symbol is used, for errors.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    pub(crate) section: &'a str,
    pub(crate) offset: u64,
}

/// The address of a symbol.
pub(crate) enum Address {
    /// A place in the value of the object's map of that index.
    Value { map: u32, offset: u32 },
    /// A function or variable of that number among the target's types.
    Type(u32),
    /// A number.
    Number(u64),
}

impl<'a> Symbols<'a> {
    pub(crate) fn new(object: &'a Parsed, config: &'a [bool], options: &LinkOptions<'a>) -> Self {
        Self { object, config, options: *options, found: HashMap::new(), used: Vec::new() }
    }

    /// The functions and variables of the kernel that were referred to.
    pub(crate) fn used(self) -> Vec<Extern> {
        self.used
    }

    /// Finds the address of a symbol.
    pub(crate) fn address(
        &mut self,
        place: Use<'_>,
        symbol: u32,
        name: &str,
        declared: Declared,
    ) -> Result<Address, Error> {
        if let DeclaredKind::Config(index) = declared.kind {
            let known = self.config.get(index).copied().unwrap_or(false);
            return match (self.object.config_map, self.object.externs.config.get(index)) {
                (Some(map), Some(config)) if known || declared.weak => {
                    Ok(Address::Value { map, offset: config.offset })
                }
                _ => Err(Error::ConfigMissing {
                    section: place.section.into(),
                    offset: place.offset,
                    symbol: name.into(),
                }),
            };
        }
        Ok(match self.find(place, symbol, name, declared)? {
            // A program can only test whether it is there.
            Some(ExternKind::Function(id)) if self.own(name, declared) == Some(id) => {
                Address::Number(NOWHERE)
            }
            Some(ExternKind::Function(id) | ExternKind::Variable(id)) => Address::Type(id),
            Some(ExternKind::Address) => {
                let known = self.options.addresses.and_then(|addresses| addresses(name));
                Address::Number(known.unwrap_or(NOWHERE))
            }
            None => Address::Number(0),
        })
    }

    /// The number of the function among the target's types; `None` if it is weak and missing.
    pub(crate) fn function(
        &mut self,
        place: Use<'_>,
        symbol: u32,
        name: &str,
        declared: Declared,
    ) -> Result<Option<u32>, Error> {
        match (declared.kind, self.find(place, symbol, name, declared)?) {
            (DeclaredKind::Function(_), Some(ExternKind::Function(id))) => Ok(Some(id)),
            (DeclaredKind::Function(_), _) => Ok(None),
            _ => Err(missing(place, name, "is called, which only functions can be")),
        }
    }

    /// Finds the symbol, once; `None` if it is weak and missing.
    fn find(
        &mut self,
        place: Use<'_>,
        symbol: u32,
        name: &str,
        declared: Declared,
    ) -> Result<Option<ExternKind>, Error> {
        if let Some(found) = self.found.get(&symbol) {
            return Ok(*found);
        }
        let own = self.own(name, declared).map(ExternKind::Function);
        if own.is_some() {
            self.found.insert(symbol, own);
            return Ok(own);
        }
        let found = match self.search(name, declared) {
            Ok(kind) => Some(kind),
            Err(Missing::Symbol(_)) if declared.weak => None,
            Err(Missing::Symbol(reason)) => return Err(missing(place, name, reason)),
            Err(Missing::Types(error)) => return Err(error),
        };
        self.found.insert(symbol, found);
        self.used.extend(found.map(|kind| Extern { name: name.into(), kind }));
        Ok(found)
    }

    /// The number of the host's own function of that name.
    fn own(&self, name: &str, declared: Declared) -> Option<u32> {
        match declared.kind {
            DeclaredKind::Function(_) => self.options.functions?(name),
            _ => None,
        }
    }

    fn search(&self, name: &str, declared: Declared) -> Result<ExternKind, Missing> {
        let (kind, ty) = match declared.kind {
            DeclaredKind::Function(ty) => (Kind::Func, ty),
            DeclaredKind::Variable(ty) => (Kind::Var, ty),
            DeclaredKind::Address => {
                return match self.options.addresses {
                    Some(addresses) if addresses(name).is_none() => {
                        Err(Missing::Symbol("no address of that name is known"))
                    }
                    _ => Ok(ExternKind::Address),
                };
            }
            DeclaredKind::Config(_) => return Err(Missing::Symbol("it is a configuration value")),
        };
        let (Some(local), Some(target)) = (&self.object.btf, self.options.target) else {
            if kind == Kind::Func && self.options.functions.is_some() {
                return Err(Missing::Symbol(
                    "this runtime has no function of that name; declare it __weak and compare it with NULL, or give the \
                     types of a kernel (--btf) to verify the program for that kernel",
                ));
            }
            return Err(Missing::Symbol(
                "the types of no kernel are given to find it in; give some (--btf), or declare it __weak",
            ));
        };
        let id = target.find(name, kind).or_else(|| target.find(essential_name(name), kind));
        let id = id.ok_or(Missing::Symbol(
            "the target has none of that name; give the types of one that does, or declare it __weak",
        ))?;
        let own = if kind == Kind::Var { target.ty(id)?.target() } else { id };
        let compatible = co_re::is_compatible((local, ty), (target, own));
        match compatible.map_err(|fault| fault.missing())? {
            true if kind == Kind::Func => Ok(ExternKind::Function(id)),
            true => Ok(ExternKind::Variable(id)),
            false => Err(Missing::Symbol("the target's is of another type")),
        }
    }
}

/// Why a symbol was not found.
enum Missing {
    Symbol(&'static str),
    Types(Error),
}

impl From<skep_btf::Error> for Missing {
    fn from(error: skep_btf::Error) -> Self {
        Self::Types(error.into())
    }
}

impl co_re::Fault {
    fn missing(self) -> Missing {
        match self {
            Self::Reason(reason) => Missing::Symbol(reason),
            Self::Types(error) => error.into(),
        }
    }
}

fn missing(place: Use<'_>, name: &str, reason: &'static str) -> Error {
    Error::KernelSymbol { section: place.section.into(), offset: place.offset, symbol: name.into(), reason }
}
