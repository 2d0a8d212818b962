//! Everything that can go wrong between an object file and a result.

mod early;
mod iterate;
#[cfg(feature = "signatures")]
mod signature;

pub use early::Exhausted;
pub use iterate::IterateFault;
#[cfg(feature = "signatures")]
pub use signature::{SignatureFault, SignerId};
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
    /// An object is not signed by somebody who is trusted.
    #[cfg(feature = "signatures")]
    #[error("cannot load {object}: {fault}")]
    Signature {
        /// The file, if the object was read from one.
        object: String,
        /// What is wrong.
        fault: Box<SignatureFault>,
    },
    /// A file is no certificate.
    #[cfg(feature = "signatures")]
    #[error("not a certificate (X.509 in DER or PEM): {why}")]
    Certificate {
        /// What is wrong with it.
        why: String,
    },
    /// The runtime is to guard the host's memory, and cannot.
    #[cfg(feature = "guard")]
    #[error(transparent)]
    Guard(#[from] skep_guard::Error),
    /// The code of a program would contain an instruction that opens guarded memory.
    #[cfg(feature = "guard")]
    #[error(
        "program {program}: its machine code would contain, at byte {offset}, what opens guarded memory if a jump leads there; \
         change a constant or a distance in it, or hide constants (skep::jit::Options::untrusted)"
    )]
    OpensGuard {
        /// The program.
        program: String,
        /// The first such byte.
        offset: usize,
    },
    /// The bytes are not instructions.
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
    /// A tenant would exceed its quota.
    #[error(
        "tenant {tenant}: {used} of {limit} {what} are used, and {wanted} more would exceed the quota; unload something, \
         or raise the quota"
    )]
    Quota {
        /// The tenant's name.
        tenant: String,
        /// What is limited.
        what: &'static str,
        /// What the tenant has, including what waits for readers.
        used: u64,
        /// What was asked for in addition.
        wanted: u64,
        /// The limit.
        limit: u64,
    },
    /// The audit log took no record of it, and the runtime is to refuse then what is not recorded.
    #[error("refused, since the audit log takes no record of it: {source}")]
    Audit {
        /// What the log's sink said.
        source: std::io::Error,
    },
    /// The program's type can be verified, but skep cannot run it.
    #[error(
        "program {program}: programs of type {program_type} can be verified, but not run: they see objects of a kernel by \
         its types; skep runs {}",
        runs()
    )]
    TypeNotProvided {
        /// The program.
        program: String,
        /// The type's name.
        program_type: &'static str,
    },
    /// Programs of that type do not run on a [`crate::Context`].
    #[error(
        "programs of type {program_type} do not run on a context: give packets to Program::run, buffers to \
         Program::run_raw; types with a kernel's objects cannot be run"
    )]
    NoContext {
        /// The type's name.
        program_type: &'static str,
    },
    /// A context has no such field, or not one of that sort.
    #[error(
        "the context of programs of type {program_type} has no such field {name:?}; it has {}",
        list(known)
    )]
    NoField {
        /// The type's name.
        program_type: &'static str,
        /// The name.
        name: String,
        /// The names of all fields that programs see.
        known: Vec<String>,
    },
    /// A number is too large for its field.
    #[error("{value:#x} does not fit into the field {name}, which has {bytes} bytes")]
    FieldValue {
        /// The field.
        name: String,
        /// The number.
        value: u64,
        /// The size of the field.
        bytes: u32,
    },
    /// A field of a context lacks the full socket that programs rely on.
    #[error(
        "programs of type {program_type} rely on a full socket in the field {name} of their context; give one with \
         Context::set_socket, in a state other than TIME_WAIT and NEW_SYN_RECV"
    )]
    FieldMissing {
        /// The type's name.
        program_type: &'static str,
        /// The field.
        name: String,
    },
    /// Too many bytes for a context.
    #[error("the context of programs of type {program_type} takes at most {most} plain bytes, not {given}")]
    ContextBytes {
        /// The type's name.
        program_type: &'static str,
        /// How many were given.
        given: usize,
        /// The most; 0 if it is a structure.
        most: usize,
    },
    /// A program calls a helper that is not provided for what its type runs on.
    #[error("program {program}: {helper} is not provided to programs of type {program_type}")]
    HelperOfContext {
        /// The program.
        program: String,
        /// The type's name.
        program_type: &'static str,
        /// The helper's name.
        helper: String,
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
    /// A verified program needs something that this runtime does not provide.
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
    /// A program allocates objects of a type that the runtime cannot make.
    #[error("the runtime makes no objects of struct {ty}: {source}")]
    ObjectType {
        /// The structure's name.
        ty: String,
        /// Why.
        source: skep_maps::objects::ShapeError,
    },
    /// A file is not BTF.
    #[error(
        "{path}: {source}; give raw BTF, as /sys/kernel/btf/vmlinux is, or an ELF file with a section .BTF"
    )]
    Types {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: skep_btf::Error,
    },
    /// A host's helper has the number of an existing one.
    #[error("helper number {id} is taken by {taken}; choose another")]
    HelperTaken {
        /// The number.
        id: u32,
        /// The name of the existing helper.
        taken: String,
    },
    /// A map could not be created or used.
    #[error(transparent)]
    Map(#[from] skep_maps::MapError),
    /// A map given to the linker, or put into a map of maps, differs from the definition that programs are verified
    /// with.
    #[error("map {name}: {field} differs: expected {wanted}, but the given map is {given}; {remedy}")]
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
    /// An index beyond the end of an array of programs.
    #[error("index {index} is out of range for map {map}, which has {len} elements; indices start at 0")]
    NoSuchEntry {
        /// The map.
        map: String,
        /// The index.
        index: u32,
        /// How many there are.
        len: u32,
    },
    /// A program whose arguments differ from those of the programs in an array.
    #[error(
        "program {program} does not fit the map {map}: it holds {expected}, found {given}; a tail call passes on the \
         arguments of its program"
    )]
    WrongProgram {
        /// The map.
        map: String,
        /// The program.
        program: String,
        /// The arguments of the map's programs.
        expected: String,
        /// What the program is.
        given: String,
    },
    /// An array whose programs take other arguments than those that are reached through an array of maps.
    #[error("map {inner} does not fit the map {map}, which leads to {expected}; {inner} holds {given}")]
    WrongPrograms {
        /// The array of maps.
        map: String,
        /// The array of programs.
        inner: String,
        /// The arguments of programs that are reached through the array of maps.
        expected: String,
        /// The arguments of programs in the array of programs.
        given: String,
    },
    /// An array of maps whose definition has no template for its maps.
    #[error("map {map}: its definition has no template of its inner maps; set `inner`")]
    NoInnerShape {
        /// The map.
        map: String,
    },
    /// A function of a program that cannot be replaced or watched, or not by this program.
    #[error("{function} of program {program}: {why}")]
    Target {
        /// The program with the function.
        program: String,
        /// The function.
        function: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A function that an extension replaces, or that programs watch, while it is to be replaced or watched.
    #[error("{function} of program {program} is replaced or watched already: detach what is there")]
    TargetTaken {
        /// The program with the function.
        program: String,
        /// The function.
        function: String,
    },
    /// A program that is in an array of programs and whose functions are to be replaced, or the other way round: a
    /// chain of tail calls could lead through its functions again and again.
    #[error(
        "program {program} cannot both be in an array of programs and have functions that are replaced: end one of them first"
    )]
    TailCallee {
        /// The program.
        program: String,
    },
    /// Programs, arrays of programs, or maps with elements that are freed, of different runtimes.
    #[error(
        "map {map}: programs, the arrays that hold them, and maps whose freed elements wait for readers must be of one runtime: \
         load them into one, or make the map with Map::create_in and Runtime::memory"
    )]
    OtherRuntime {
        /// The map.
        map: String,
    },
    /// A program whose arguments differ from those of a hook's programs.
    #[error("program {program} does not fit the hook: it has {expected}, found {given}")]
    WrongAttachment {
        /// The program.
        program: String,
        /// The arguments of the hook's programs.
        expected: String,
        /// What the program is.
        given: String,
    },
    /// A program of another runtime.
    #[error(
        "program {program} and the hook belong to different runtimes: load the program into the hook's runtime"
    )]
    ForeignProgram {
        /// The program.
        program: String,
    },
    /// A program of a runtime that does not see the world to whose device it should be attached.
    #[error(
        "program {program} cannot be attached to a device: its runtime does not see this world; give the world to the \
         runtime's builder"
    )]
    OtherWorld {
        /// The program.
        program: String,
    },
    /// A program reads more of a tracepoint's record than there is.
    #[error("program {program} reads {reads} bytes of the tracepoint's record, which has {record}")]
    RecordSize {
        /// The program.
        program: String,
        /// Up to which byte it reads.
        reads: usize,
        /// The bytes of the record.
        record: usize,
    },
    /// Something of a world's machine is missing or taken.
    #[error(transparent)]
    World(#[from] skep_world::Error),
    /// An array of programs names a program that the object does not have.
    #[error("map {map}: element {index} names the program {program}, which was not loaded")]
    EntryMissing {
        /// The map.
        map: String,
        /// The index.
        index: u32,
        /// The program.
        program: String,
    },
    /// The load would change a map that the host gave.
    #[error("map {map} was given by the host, so the load cannot set {what}; set it in the given map")]
    GivenMap {
        /// The map.
        map: String,
        /// `max_entries`, or a variable's name.
        what: String,
    },
    /// skep does not define the program type, so the program's arguments are unknown.
    #[error("program {program}: skep has no program type {program_type}; use one of skep::abi::TYPES")]
    ForeignType {
        /// The program.
        program: String,
        /// The type's name.
        program_type: &'static str,
    },
    /// The description of a context of the host's own cannot be used.
    #[error("context {name}: {why}")]
    HostType {
        /// The structure's name in C.
        name: String,
        /// What is wrong, and the remedy.
        why: String,
    },
    /// A host's own implementation of [`HostStruct`](crate::host::HostStruct) lends something else than it describes.
    #[error(
        "program {program}: struct {name} does not lend the fields that it describes, in their order and with their sizes; \
         derive Context instead of implementing HostStruct by hand"
    )]
    Lent {
        /// The program.
        program: String,
        /// The structure's name in C.
        name: &'static str,
    },
    /// A program of a host's own type has returned a number that is no verdict.
    #[error(
        "program {program} returned {result}, which is none of its type's verdicts; the verifier proves only that a \
         result is between the least and the greatest, so number verdicts without gaps"
    )]
    Verdict {
        /// The program.
        program: String,
        /// What it returned.
        result: i32,
    },
    /// There is no such map, program or variable.
    #[error("there is no {what} {name:?} in the object; it has {}", list(known))]
    Unknown {
        /// `map`, `program` or `variable`.
        what: &'static str,
        /// The name asked for.
        name: String,
        /// The existing names.
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
    /// A Rust type that differs from the type that the object has for the place.
    #[error("{place}: expected {expected}, found {given}")]
    TypeMismatch {
        /// The key or value of a map, a field of it, or a variable.
        place: String,
        /// What the object has there.
        expected: String,
        /// The Rust type.
        given: String,
    },
    /// A typed view of a map of another kind.
    #[error("map {map} is a map of kind {kind}; this view is for others: use {wanted}")]
    WrongView {
        /// The map.
        map: String,
        /// Its kind.
        kind: skep_abi::MapKind,
        /// What to use.
        wanted: &'static str,
    },
    /// A variable that programs rely on for ever.
    #[error(
        "variable {name} is a constant, for which the programs were verified; set it before the load, by Linker::set or \
         Linker::variable, and load the object again"
    )]
    ConstantVariable {
        /// The variable.
        name: String,
    },
    /// State of an old module that cannot be had in the new one.
    #[error("{place}: {why}")]
    Migration {
        /// Map or variable, key, and the member.
        place: String,
        /// Why not, and what to do.
        why: String,
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
    /// Executable memory could not be allocated or changed.
    #[error(transparent)]
    Text(#[from] skep_text::Error),
    /// A declaration of a host's function cannot be used.
    #[error("cannot use the prototype{}: {why}", of_function(.name))]
    Prototype {
        /// The function; empty if it is about the file.
        name: String,
        /// Why.
        why: String,
    },
    /// The run lacks the state that functions of the host take, which the program calls.
    #[error("{}", state_missing(.program, .wanted, .given))]
    StateMissing {
        /// The program.
        program: String,
        /// The Rust type that the functions take.
        wanted: &'static str,
        /// The type that the run has.
        given: Option<&'static str>,
    },
    /// A program calls functions of the host that take states of different types, and a run has one.
    #[error(
        "program {program} calls functions that take the state {first} and others that take {second}: \
             a run has one state; put both into one structure"
    )]
    StateTypes {
        /// The program.
        program: String,
        /// One of the Rust types.
        first: &'static str,
        /// Another one.
        second: &'static str,
    },
    /// Every virtual CPU is in a run, and this thread may not wait for one, or this thread is ending.
    #[error("{}", no_cpu(.0))]
    Slots(#[from] skep_rcu::Error),
    /// The thread was interrupted while it held the lock of a map value, and the program may take a lock.
    #[error(
        "the program may take the lock of a map's value, and this thread holds one already: a handler of a signal came \
         between; run the program when the handler has returned"
    )]
    LockHeld,
    /// A run took more than its budget. What it held is released; what it wrote into maps, packets and buffers stays.
    #[error("program {program} ended after {of}; raise its budget, or make the program do less in one run")]
    BudgetExhausted {
        /// The program that the host ran.
        program: String,
        /// What is used up.
        of: Exhausted,
    },
    /// Another thread ended the run. What it held is released; what it wrote into maps, packets and buffers stays.
    #[error("program {program} was interrupted by the host")]
    Interrupted {
        /// The program that the host ran.
        program: String,
    },
    /// A function of the host panicked while a program called it. What the run held is released; what it wrote into
    /// maps, packets and buffers stays.
    #[error("program {program} ended: {function} of the host panicked: {message}")]
    HostPanicked {
        /// The program that the host ran.
        program: String,
        /// The name of the function, or `the log`.
        function: String,
        /// What the panic said.
        message: String,
    },
    /// A program without checks was given a budget, or interrupted.
    #[error("program {program} has no checks for budgets; make its runtime with RuntimeBuilder::budget")]
    NoBudgets {
        /// The program.
        program: String,
    },
    /// A program was run with an input that its type does not take.
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
    /// A table of functions that does not fit what the host's types say of it, or the place where it was put.
    #[error("table {table}{}: {why}", of_member(.member))]
    OpsTable {
        /// The name of the variable.
        table: String,
        /// The member; empty where it is about the table as a whole.
        member: String,
        /// What is wrong, and the remedy.
        why: String,
    },
    /// An iterator shows something that the runtime does not have.
    #[error("program {program} cannot be run: {why}")]
    IteratorNotProvided {
        /// The program.
        program: String,
        /// The objects that it is for.
        target: String,
        /// What is missing.
        why: String,
    },
    /// A program of type `iter` could not be run over what it was given.
    #[error("program {program}: {fault}")]
    Iterate {
        /// The program.
        program: String,
        /// What is wrong.
        fault: IterateFault,
    },
    /// A member of a table was called with other arguments than it takes.
    #[error("member {member}: argument {argument} must be {expected}")]
    OpsArguments {
        /// The member.
        member: String,
        /// The number of the argument, from 1.
        argument: usize,
        /// What the member takes.
        expected: String,
    },
}

fn of_member(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", member {member}") }
}

fn of_function(name: &str) -> String {
    if name.is_empty() { "s of the file".to_owned() } else { format!(" of {name}") }
}

fn state_missing(program: &str, wanted: &str, given: &Option<&'static str>) -> String {
    let given = given.map_or_else(|| "no state".to_owned(), |given| format!("a state of type {given}"));
    format!(
        "program {program} calls functions that take a state of type {wanted}, and this run has {given}: \
         run it by Program::with_state"
    )
}

fn no_cpu(error: &skep_rcu::Error) -> String {
    match error {
        skep_rcu::Error::NoSlot { limit } => format!(
            "all {limit} virtual CPUs are in use, and a thread in a run of another runtime, in a timer or in a forked \
             child does not wait for one; raise RuntimeBuilder::cpus, or let idle threads call Runtime::release_cpu"
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

/// The names of the program types that skep can run.
fn runs() -> String {
    let mut names: Vec<_> =
        skep_abi::TYPES.iter().filter(|kind| kind.native.is_some()).map(|kind| kind.name).collect();
    names.dedup();
    names.join(", ")
}
