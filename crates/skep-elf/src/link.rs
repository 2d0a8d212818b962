//! Links one program of an object for a target system, in this order:
//!
//! ```text
//!   code      the functions that the program reaches become one sequence of instructions
//!   relocate    their references to maps, variables and functions are resolved
//!   symbols     their references to the target: configuration, kernel functions and variables
//!   lines     the records of .BTF.ext: prototypes, CO-RE relocations, source lines
//! ```

mod code;
mod lines;
mod relocate;
mod symbols;

use std::fmt;
use std::sync::Arc;

use skep_abi::{Extern, Function, LineInfo};
use skep_btf::Btf;
use skep_isa::{Insn, Slot};

use crate::error::Error;
use crate::functions::CodeRange;
use crate::parsed::Parsed;
use symbols::Symbols;

/// The target that the programs of an object are linked for.
#[derive(Clone, Copy, Default)]
pub struct LinkOptions<'a> {
    /// The types of the system that programs are for: CO-RE relocations take offsets from them, and kernel functions
    /// and variables are looked up there. Without them instructions stay as the compiler wrote them, for
    /// the structures that the object was compiled with, and kernel functions and variables are not found.
    pub target: Option<&'a Btf>,
    /// Whether the target has only some of its system's types. Members of others stay where the object was compiled to
    /// find them.
    pub partial: bool,
    /// Addresses of kernel symbols without types. Without this, each such symbol gets a made-up address.
    pub addresses: Option<&'a Addresses<'a>>,
    /// Numbers of the host's own functions, by name. They take precedence over functions of the kernel.
    pub functions: Option<&'a Functions<'a>>,
}

/// Returns the number of the function with this name.
pub type Functions<'a> = dyn Fn(&str) -> Option<u32> + 'a;

/// Returns the address of the kernel symbol with this name.
pub type Addresses<'a> = dyn Fn(&str) -> Option<u64> + 'a;

impl fmt::Debug for LinkOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkOptions")
            .field("target", &self.target)
            .field("partial", &self.partial)
            .field("addresses", &self.addresses.is_some())
            .field("functions", &self.functions.is_some())
            .finish()
    }
}

/// For each slot of a program, where its bytes are in the file.
pub(crate) fn places(
    object: &Parsed,
    name: &str,
    function: usize,
    config: &[bool],
) -> Result<Vec<usize>, Error> {
    let options = LinkOptions::default();
    let code = code::assemble(object, name, function, Symbols::new(object, config, &options))?;
    let of = |origin: &CodeRange| {
        let section = object.elf.sections[origin.section].data.start;
        // Fits: functions are inside their sections, and these inside the file.
        let (start, end) = (section + origin.start as usize, section + origin.end as usize);
        (start..end).step_by(Slot::BYTES)
    };
    Ok(code.origins.iter().flat_map(of).collect())
}

/// A linked program.
pub(crate) struct Linked {
    pub(crate) insns: Vec<Insn>,
    pub(crate) functions: Vec<Function>,
    /// Its source lines, ascending by slot.
    pub(crate) lines: Vec<LineInfo>,
    /// What it refers to outside the object.
    pub(crate) externs: Vec<Extern>,
    /// What the target lacks, by slot.
    pub(crate) unresolved: Vec<(u32, Arc<str>)>,
}

/// Links a program, given by its name and the number of its function, with all functions that it reaches. `config` says
/// which configuration values are known.
pub(crate) fn link(
    object: &Parsed,
    (name, function): (&str, usize),
    config: &[bool],
    options: &LinkOptions<'_>,
) -> Result<Linked, Error> {
    let symbols = Symbols::new(object, config, options);
    let mut code = code::assemble(object, name, function, symbols)?;
    lines::prototypes(object, &mut code.functions, &code.origins)?;
    let mut unresolved = Vec::new();
    if let Some(target) = options.target {
        let target = (target, options.partial);
        unresolved = lines::relocate_to(object, target, &code.functions, &code.origins, &mut code.insns)?;
    }
    let lines = lines::lines(object, &code.functions, &code.origins)?;
    let (insns, functions, externs) = (code.insns, code.functions, code.externs);
    Ok(Linked { insns, functions, lines, externs, unresolved })
}
