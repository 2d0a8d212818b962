//! Everything that can go wrong between an object file and a result.

use skep_verifier::Refusal;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not an object that skep understands.
    #[error(transparent)]
    Object(#[from] skep_elf::Error),
    /// The bytes are no instructions.
    #[error(transparent)]
    Decode(#[from] skep_isa::DecodeError),
    /// The verifier refused a program.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    /// A program calls a helper that this runtime does not provide.
    #[error(
        "program {program} calls the helper {helper}#{id}, which this runtime does not provide; {}",
        "register an implementation with RuntimeBuilder::helper, or compile the call out"
    )]
    HelperMissing {
        /// The program.
        program: String,
        /// The helper's name.
        helper: String,
        /// Its number.
        id: u32,
    },
    /// A program refers to a function or variable that only a kernel has.
    #[error(
        "program {program} refers to {symbol}, which only a kernel has; load it there, or only verify it here"
    )]
    KernelSymbol {
        /// The program.
        program: String,
        /// The function or variable.
        symbol: String,
    },
    /// A program is of a type that can be verified, and that no runtime of skep runs.
    #[error(
        "program {program}: programs of type {program_type} can be verified, but not run; skep runs {}",
        runs()
    )]
    TypeNotProvided {
        /// The program.
        program: String,
        /// The type's name.
        program_type: &'static str,
    },
    /// A program accesses a field of its context that skep's contexts lack.
    #[error(
        "program {program} accesses the field {field} of its context, which skep does not provide to {program_type}"
    )]
    FieldNotProvided {
        /// The program.
        program: String,
        /// The type's name.
        program_type: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A program was verified and needs something that this runtime does not have.
    #[error(
        "program {program}: instruction {slot} is {what}, which skep verifies but does not run; it runs {provided}"
    )]
    NotProvided {
        /// The program.
        program: String,
        /// The instruction.
        slot: usize,
        /// What it needs.
        what: String,
        /// What there is.
        provided: &'static str,
    },
    /// A file is no BTF.
    #[error(
        "{path}: {source}; give raw BTF, as /sys/kernel/btf/vmlinux is, or an ELF file with a section .BTF"
    )]
    Types {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: skep_btf::Error,
    },
    /// A host's helper has the number of one that exists.
    #[error("helper number {id} is taken by {taken}; choose another")]
    HelperTaken {
        /// The number.
        id: u32,
        /// Whose it is.
        taken: String,
    },
    /// A map could not be created or used.
    #[error(transparent)]
    Map(#[from] skep_maps::MapError),
    /// A map handed to the linker, or put into a map of maps, is not what programs are verified with.
    #[error("map {name}: {field} differs: wanted is {wanted}; the map given is {given}; {remedy}")]
    MapMismatch {
        /// The map.
        name: String,
        /// The first respect in which they differ.
        field: &'static str,
        /// What the object, or the template of a map of maps, defines.
        wanted: String,
        /// What was given.
        given: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An element beyond the end of an array of programs.
    #[error("map {map} has {len} elements, of which {index} is none; they count from 0")]
    NoSuchEntry {
        /// The map.
        map: String,
        /// The index.
        index: u32,
        /// How many there are.
        len: u32,
    },
    /// A program that is given other things than those of an array of programs.
    #[error(
        "program {program} does not fit the map {map}: it holds {expected}, found {given}; a tail call passes on what \
         its program was given"
    )]
    WrongProgram {
        /// The map.
        map: String,
        /// The program.
        program: String,
        /// What the map's programs are.
        expected: String,
        /// What the program is.
        given: String,
    },
    /// An array of programs that are given other things than those that are found through an array of maps.
    #[error(
        "map {inner} does not fit the map {map}: what is found through that are {expected}, and {inner} holds {given}"
    )]
    WrongPrograms {
        /// The array of maps.
        map: String,
        /// The array of programs.
        inner: String,
        /// What the programs are that are found through the array of maps.
        expected: String,
        /// What those of the array of programs are.
        given: String,
    },
    /// An array of maps whose definition does not say what its maps look like.
    #[error("map {map}: its definition does not say what its maps look like; give it one with `inner`")]
    NoInnerShape {
        /// The map.
        map: String,
    },
    /// Programs, and maps that hold programs or whose elements come and go, of different runtimes.
    #[error(
        "map {map}: programs, the arrays that hold them, and maps whose elements wait for them must be of one runtime: load them \
         into one, or make the map with Map::create_in and Runtime::memory"
    )]
    OtherRuntime {
        /// The map.
        map: String,
    },
    /// A program that is given other things than those of a hook.
    #[error("program {program} does not fit the hook: it has {expected}, found {given}")]
    WrongAttachment {
        /// The program.
        program: String,
        /// What the hook's programs are.
        expected: String,
        /// What the program is.
        given: String,
    },
    /// A program of another runtime.
    #[error("program {program} is of another runtime than the hook: load it into that one")]
    ForeignProgram {
        /// The program.
        program: String,
    },
    /// An array of programs names a program that the object does not have.
    #[error("map {map}: element {index} is to hold the program {program}, which was not loaded")]
    EntryMissing {
        /// The map.
        map: String,
        /// The index.
        index: u32,
        /// The program.
        program: String,
    },
    /// The load was told to change a map that the host gave as it is.
    #[error(
        "map {map} was given by the host, so the load cannot set {what}; set it in the map that is given"
    )]
    GivenMap {
        /// The map.
        map: String,
        /// What was to be set: `max_entries`, or a variable's name.
        what: String,
    },
    /// A program type is not one that skep defines, so nothing is known of what such programs are given.
    #[error("program {program}: the type {program_type} is none of skep's; take one of skep::abi::TYPES")]
    ForeignType {
        /// The program.
        program: String,
        /// The type's name.
        program_type: &'static str,
    },
    /// There is no such map, program or variable.
    #[error("there is no {what} {name:?} in the object; it has {}", list(known))]
    Unknown {
        /// `map`, `program` or `variable`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A value has the wrong size for a global variable.
    #[error("variable {name} has {expected} bytes, {given} were given")]
    VariableSize {
        /// The variable.
        name: String,
        /// Bytes it has.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// Code could not be generated.
    #[error("cannot compile program {program}: {source}")]
    Compile {
        /// The program.
        program: String,
        /// Why.
        source: skep_jit::Error,
    },
    /// The interpreter cannot run the program.
    #[error("cannot interpret program {program}: {source}")]
    Interpret {
        /// The program.
        program: String,
        /// Why.
        source: skep_interp::Error,
    },
    /// Executable memory could not be had.
    #[error(transparent)]
    Text(#[from] skep_text::Error),
    /// Every virtual CPU belongs to another thread that lives, or the thread is ending.
    #[error("{}", no_cpu(.0))]
    Slots(#[from] skep_rcu::Error),
    /// The thread was interrupted while it held the lock of a map's value, and the program may take one.
    #[error(
        "the program may take the lock of a map's value, and this thread holds one already: a handler of a signal came \
         between; run the program when the handler has returned"
    )]
    LockHeld,
    /// A program was run on something that its type does not take.
    #[error("program {program} is of type {program_type} and takes {expected}, not {given}")]
    WrongInput {
        /// The program.
        program: String,
        /// Its type.
        program_type: &'static str,
        /// What it takes.
        expected: String,
        /// What was given.
        given: String,
    },
}

fn no_cpu(error: &skep_rcu::Error) -> String {
    match error {
        skep_rcu::Error::NoSlot { limit } => format!(
            "all {limit} virtual CPUs belong to other threads: a thread that has run a program keeps one until it \
             ends; raise RuntimeBuilder::cpus, or let idle threads call Runtime::release_cpu"
        ),
        other => other.to_string(),
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".into(),
        names => names.join(", "),
    }
}

/// The names of the types that skep runs.
fn runs() -> String {
    let mut names: Vec<_> =
        skep_abi::TYPES.iter().filter(|kind| kind.native.is_some()).map(|kind| kind.name).collect();
    names.dedup();
    names.join(", ")
}
