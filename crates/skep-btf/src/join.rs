//! The kernel's types and those of its modules in one.
//!
//! The BTF of a module continues the kernel's: its numbers of types and offsets of strings go on where those of the
//! kernel end. So the same numbers mean other types in each module. Here modules follow each other, and
//! the numbers in all but the first move up:
//!
//! ```text
//!   numbers  1 ... n | n+1 ... a | a+1 ...... b |
//!            kernel  | module 1  | module 2     |    in its own file, module 2 begins at n+1 too
//! ```

use std::sync::Arc;

use crate::btf::{Btf, SECTION};
use crate::error::Error;
use crate::header::MAGIC;
use crate::types::Kind;

/// Length of the header.
const HEADER: u32 = 24;

/// By how much the numbers of a module move up.
struct Shift<'a> {
    module: &'a Btf,
    /// The first number of a type, and the first offset of a string, that are the module's own.
    own: (u32, u32),
    types: u32,
    strings: u32,
}

impl Btf {
    /// These types with those of modules, each of which continues these ([`Btf::parse_split`]). Types with the same
    /// name are found in the order of the modules, the kernel's first.
    ///
    /// # Errors
    ///
    /// [`Error::NoModule`] if one of them continues other types, or begins anew; [`Error::TypeMissing`] and
    /// [`Error::Damaged`] if one refers to a type or string that it does not have.
    pub fn join(self: &Arc<Self>, modules: &[Self]) -> Result<Self, Error> {
        if self.base().is_some() {
            return Err(Error::NoModule);
        }
        let (mut types, mut strings) = (self.own_bytes().to_vec(), self.own_strings().to_vec());
        let own = (self.len(), strings.len() as u32);
        let mut count = self.len();
        for module in modules {
            // The first string of a file that continues none is empty.
            let begins_anew = module.own_strings().first() == Some(&0);
            if begins_anew || !module.base().is_some_and(|base| std::ptr::eq(base, &raw const **self)) {
                return Err(Error::NoModule);
            }
            let shift = Shift { module, own, types: count - own.0, strings: length(strings.len())? - own.1 };
            shift.append(&mut types)?;
            strings.extend_from_slice(module.own_strings());
            count = count.checked_add(module.len() - own.0).ok_or(TOO_LARGE)?;
        }
        let (types_len, strings_len) = (length(types.len())?, length(strings.len())?);
        let mut bytes = Vec::with_capacity(HEADER as usize + types.len() + strings.len());
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([1, 0]);
        for word in [HEADER, 0, types_len, types_len, strings_len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(types);
        bytes.extend(strings);
        Self::parse(bytes)
    }
}

const TOO_LARGE: Error =
    Error::Damaged { section: SECTION, offset: 0, reason: "all modules together are too large" };

fn length(bytes: usize) -> Result<u32, Error> {
    u32::try_from(bytes).map_err(|_| TOO_LARGE)
}

impl Shift<'_> {
    /// Appends the module's types with their new numbers.
    fn append(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        for ty in self.module.own_types() {
            let record = self.module.record(ty.id)?;
            let mut words: Vec<u32> = record
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect();
            self.name(&mut words[0])?;
            if refers(ty.kind) {
                self.ty(&mut words[2])?;
            }
            let tail = &mut words[3..];
            match ty.kind {
                Kind::Array => {
                    self.ty(&mut tail[0])?;
                    self.ty(&mut tail[1])?;
                }
                Kind::Struct | Kind::Union => {
                    for member in tail.chunks_exact_mut(3) {
                        self.name(&mut member[0])?;
                        self.ty(&mut member[1])?;
                    }
                }
                Kind::Enum => tail.chunks_exact_mut(2).try_for_each(|value| self.name(&mut value[0]))?,
                Kind::Enum64 => tail.chunks_exact_mut(3).try_for_each(|value| self.name(&mut value[0]))?,
                Kind::FuncProto => {
                    for param in tail.chunks_exact_mut(2) {
                        self.name(&mut param[0])?;
                        self.ty(&mut param[1])?;
                    }
                }
                Kind::Datasec => {
                    tail.chunks_exact_mut(3).try_for_each(|variable| self.ty(&mut variable[0]))?
                }
                _ => {}
            }
            out.extend(words.into_iter().flat_map(u32::to_le_bytes));
        }
        Ok(())
    }

    fn ty(&self, id: &mut u32) -> Result<(), Error> {
        if *id >= self.module.len() {
            return Err(Error::TypeMissing { id: *id });
        }
        if *id >= self.own.0 {
            *id = id.checked_add(self.types).ok_or(TOO_LARGE)?;
        }
        Ok(())
    }

    fn name(&self, offset: &mut u32) -> Result<(), Error> {
        self.module.string(*offset)?;
        if *offset >= self.own.1 {
            *offset = offset.checked_add(self.strings).ok_or(TOO_LARGE)?;
        }
        Ok(())
    }
}

/// Whether the third word of a type is the number of another.
fn refers(kind: Kind) -> bool {
    match kind {
        Kind::Ptr
        | Kind::Typedef
        | Kind::Volatile
        | Kind::Const
        | Kind::Restrict
        | Kind::Func
        | Kind::FuncProto
        | Kind::Var
        | Kind::DeclTag
        | Kind::TypeTag => true,
        Kind::Void
        | Kind::Int
        | Kind::Array
        | Kind::Struct
        | Kind::Union
        | Kind::Enum
        | Kind::Fwd
        | Kind::Datasec
        | Kind::Float
        | Kind::Enum64 => false,
    }
}
