//! Tables of functions: what a plug-in fills in and its host calls, as Linux's `struct_ops`.
//!
//! ```text
//!   host's types                         plug-in                                   host
//!   struct cache_policy {                SEC("struct_ops/admit")                   table.member("admit")
//!     __u32 (*admit)(struct request *,   __u32 BPF_PROG(admit, struct request *r,    .call(&[...])
//!                    __u64 size);                       __u64 size) { ... }
//!     char name[16];                     SEC(".struct_ops")                        table.field("name")
//!   };                                   struct cache_policy lru = {
//!                                            .admit = (void *)admit, .name = "lru" };
//! ```
//!
//! The host's structure decides: what the plug-in was compiled with must agree, member by member, which is checked when
//! it is loaded. A function is verified for the parameters of its member. An argument that is a pointer to a structure
//! can be read, and what its members point to, by loads that give 0 where there is no memory. It cannot be written.

mod types;

use crate::error::Error;
use crate::image::Engine;
use crate::object::Object;
use crate::program::{Call, Program};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The most parameters of a member.
const MOST: usize = 16;

/// A table of functions that a plug-in fills in ([`Module::ops_table`](crate::Module::ops_table)). Cheap to clone;
/// clones
/// are the same table. Its functions stay loaded as long as it lives.
///
/// The host gives its types with [`Object::set_host_types`]. Of the plug-in, each variable in a section `.struct_ops`,
/// `.struct_ops.link`, `?.struct_ops` or `?.struct_ops.link` is a table. Its structure may have a name with a suffix of
/// three underscores and more (`cache_policy___v2`). Members that are 0 are not there. Of the host:
///
/// | the host's types have | meaning |
/// |---|---|
/// | a member with the declaration tag `required` | a table must have it |
/// | a function `STRUCTURE__MEMBER` | the parameters whose names end with `__nullable` may be null |
///
/// ```
/// use skep::{Object, OpsArg, Runtime};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/ops/");
/// # std::env::set_current_dir(directory)?;
/// // The host's types are those of an object that clang compiled from its header.
/// let host = Object::open("host.bpf.o")?;
/// let mut plug_in = Object::open("policy.bpf.o")?;
/// plug_in.set_host_types(Arc::clone(host.types().expect("compiled with -g")));
///
/// let module = Runtime::new()?.load(&plug_in)?;
/// let policy = module.ops_table("small").expect("the plug-in has it");
/// assert_eq!(policy.field("name").map(|name| &name[..6]), Some(&b"small\0"[..]));
/// let admit = policy.member("admit").expect("it is required");
///
/// // struct request { __u64 key; __u32 size; __u32 hits; struct owner *owner; };
/// let mut request = [0; 24];
/// request[8..12].copy_from_slice(&64u32.to_ne_bytes());
/// assert_eq!(admit.call(&[OpsArg::Object(&request), OpsArg::Number(100)])?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpsTable(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    structure: String,
    bytes: Vec<u8>,
    fields: HashMap<String, Range<usize>>,
    members: Vec<OpsMember>,
}

/// A function of a table.
#[derive(Clone, Debug)]
pub struct OpsMember {
    name: String,
    program: Program,
    params: Box<[Param]>,
    returns: Option<Integer>,
}

/// An argument of a member.
#[derive(Clone, Copy, Debug)]
pub enum OpsArg<'a> {
    /// A number, of which the parameter's type takes the lower bytes; or an address that the program does not follow.
    Number(u64),
    /// A structure: at least as many bytes as it has. What its members that are pointers point to can be read by the
    /// program as well, if the types say what it is.
    Object(&'a [u8]),
    /// No structure, for a parameter that may be null.
    Null,
}

/// A parameter, by the host's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Param {
    Number(Integer),
    Object { bytes: usize, nullable: bool },
}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Integer {
    bytes: u32,
    signed: bool,
}

impl Integer {
    /// A number of this type, extended to all bits.
    fn of(self, number: u64) -> u64 {
        let unused = 64 - 8 * self.bytes.min(8);
        if self.signed {
            ((number << unused).cast_signed() >> unused).cast_unsigned()
        } else {
            number << unused >> unused
        }
    }
}

impl OpsTable {
    /// The name of the variable.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The name of the structure, without a suffix of three underscores and more.
    pub fn structure(&self) -> &str {
        &self.0.structure
    }

    /// The function of that member; `None` where the plug-in left it 0, and for other members.
    pub fn member(&self, name: &str) -> Option<&OpsMember> {
        self.0.members.iter().find(|member| member.name == name)
    }

    /// The functions that the plug-in has filled in, in the order of the structure.
    pub fn members(&self) -> &[OpsMember] {
        &self.0.members
    }

    /// The bytes of a member that is no function.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.0.bytes.get(self.0.fields.get(name)?.clone())
    }
}

impl OpsMember {
    /// The member's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The function, a program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Calls it, from any thread. Returns its result, extended to 64 bits as the member's type says; 0 from a
    /// member that
    /// returns nothing.
    ///
    /// If it takes structures, the thread must not block SIGSEGV or SIGBUS: a load that faults would end the process.
    ///
    /// # Errors
    ///
    /// [`Error::OpsArguments`] for other arguments than the member takes; [`Error::Slots`] and [`Error::LockHeld`] as
    /// for [`Program::run`].
    pub fn call(&self, args: &[OpsArg<'_>]) -> Result<u64, Error> {
        self.call_with(Engine::Jit, args)
    }

    /// [`OpsMember::call`] on the given engine.
    ///
    /// # Errors
    ///
    /// As [`OpsMember::call`], and [`Error::Interpret`] as for [`Program::run_with`].
    pub fn call_with(&self, engine: Engine, args: &[OpsArg<'_>]) -> Result<u64, Error> {
        let mut words = self.words(args)?;
        let context = words.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the program was verified for these parameters, each in its word; objects are borrowed for the whole
        // run, and are only read.
        let result = unsafe { self.program.call(Call::on_context(engine, context, 0))? };
        Ok(self.returns.map_or(0, |returns| returns.of(result)))
    }

    /// The arguments as the program reads them.
    fn words(&self, args: &[OpsArg<'_>]) -> Result<[u64; MOST], Error> {
        let wrong = |argument: usize, expected: String| Error::OpsArguments {
            member: self.name.clone(),
            argument: argument + 1,
            expected,
        };
        if args.len() != self.params.len() {
            let expected = format!("{} arguments, found {}", self.params.len(), args.len());
            return Err(wrong(args.len().min(self.params.len()), expected));
        }
        let mut words = [0; MOST];
        for (at, (param, arg)) in self.params.iter().zip(args).enumerate() {
            words[at] = match (*param, *arg) {
                (Param::Number(of), OpsArg::Number(number)) => of.of(number),
                (Param::Object { bytes, .. }, OpsArg::Object(object)) if object.len() >= bytes => {
                    object.as_ptr().expose_provenance() as u64
                }
                (Param::Object { nullable: true, .. }, OpsArg::Null) => 0,
                (Param::Number(_), _) => return Err(wrong(at, "a number".to_owned())),
                (Param::Object { bytes, nullable }, _) => {
                    let or = if nullable { " or null" } else { "" };
                    return Err(wrong(at, format!("a structure of {bytes} bytes{or}")));
                }
            };
        }
        Ok(words)
    }
}

/// The tables of an object whose functions are all among the programs.
pub(crate) fn tables(object: &Object, programs: &[Program]) -> Result<Vec<OpsTable>, Error> {
    let (Some(elf), Some(own)) = (object.elf(), object.types()) else { return Ok(Vec::new()) };
    let tables = elf.tables();
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let by_name: HashMap<&str, &Program> = programs.iter().map(|program| (program.name(), program)).collect();
    let loaded = |table: &&skep_elf::Table| {
        table.functions.iter().all(|(_, program)| by_name.contains_key(program.as_str()))
            && (!table.functions.is_empty() || programs.is_empty())
    };
    let host = object.host_types();
    tables.iter().filter(loaded).map(|table| types::table(table, own, host, &by_name)).collect()
}

#[cfg(test)]
mod tests {
    use super::Integer;

    #[test]
    fn integers_are_cut_and_extended() {
        let of = |bytes, signed, number| Integer { bytes, signed }.of(number);
        assert_eq!(of(1, false, 0x1ff), 0xff);
        assert_eq!(of(1, true, 0x1ff), u64::MAX);
        assert_eq!(of(4, true, 0x8000_0000), 0xffff_ffff_8000_0000);
        assert_eq!(of(4, false, u64::MAX), 0xffff_ffff);
        assert_eq!((of(8, true, u64::MAX), of(8, false, 7)), (u64::MAX, 7));
    }
}
