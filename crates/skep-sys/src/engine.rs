//! What runs maps and programs behind the system call.

use crate::errno::Errno;
use crate::iterators::Shown;
use crate::maps::MapObject;
use crate::probes::{BinaryPlaces, Functions, ProbeInfo, When};
use crate::programs::ProgramObject;
use crate::sockets::ClientSocket;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A program at functions of the kernel: what detaches it, and the addresses, each with its cookie.
pub type ProbedFunctions<P> = (P, Vec<(u64, u64)>);

/// An implementation of maps, of the verifier and of programs.
///
/// It sees no descriptors, no identifiers and no memory of a caller: this library has resolved and copied them. It
/// checks what only it can know: the sizes and flags of each kind of map, and programs.
pub trait Engine: Sized + 'static {
    /// The lock around what this library keeps. It may have to wait for a thread that changes an element of a map of
    /// references.
    type Lock: lock_api::RawMutex;
    /// Parsed types.
    type Types;
    /// A map.
    type Map;
    /// A loaded program.
    type Program;
    /// What programs output samples to.
    type PerfEvent;
    /// A program at a function of another one. Dropping it detaches the program.
    type Attachment;
    /// A probe or a tracepoint that clients have opened.
    type Probe;
    /// A program at probes. Dropping it detaches the program.
    type Probing;

    /// How many CPUs there are: per-CPU maps have a value for each.
    fn cpus(&self) -> u32;

    /// Nanoseconds since boot.
    fn now(&self) -> u64;

    /// Parses types. `log` receives lines about what is wrong.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if they are malformed.
    fn load_types(&self, bytes: &[u8], log: &mut dyn FnMut(&str)) -> Result<Self::Types, Errno>;

    /// The bytes that types were parsed from.
    fn bytes_of_types<'a>(&self, types: &'a Self::Types) -> &'a [u8];

    /// The types of the kernel that clients believe to run on, if there are some.
    fn kernel_types(&self) -> Option<Self::Types>;

    /// Changes instructions, eight bytes each, so that they fit the kernel's types. `log` receives lines about what is
    /// wrong.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if the record, the types and the instructions do not fit each other.
    fn relocate(
        &self,
        insns: &mut [u8],
        types: &Self::Types,
        relocations: &[CoreRelocation],
        log: &mut dyn FnMut(&str),
    ) -> Result<(), Errno>;

    /// Creates a map.
    ///
    /// # Errors
    ///
    /// Those of Linux for its kind.
    fn create_map(&self, request: &MapRequest<'_, Self>) -> Result<Self::Map, Errno>;

    /// Whether there is the task or the cgroup of that number to which a value of the map may belong; of a socket,
    /// which is a caller's, whether a value can belong to it.
    fn has_owner(&self, map: &Self::Map, number: u64) -> bool;

    /// Where the caller's addresses of an arena begin, if that is known: by its `map_extra` or
    /// [`place_arena`](Self::place_arena).
    fn arena_start(&self, map: &Self::Map) -> Option<u64>;

    /// Says that a caller has mapped an arena at that address. Returns whether its addresses begin there: it may have
    /// been mapped elsewhere before, or no arena of its size may begin there.
    fn place_arena(&self, map: &Self::Map, address: u64) -> bool;

    /// Whether values of the map have a lock (`struct bpf_spin_lock`).
    fn has_lock(&self, map: &Self::Map) -> bool;

    /// Bytes of memory that a map takes.
    fn map_memory(&self, map: &Self::Map) -> u64;

    /// Copies a value. `value` has the size of [`MapObject::host_value_size`]; for a bloom filter it holds the value
    /// that is asked for.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] and those of the kind.
    fn lookup(&self, map: &Self::Map, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno>;

    /// Writes an element.
    ///
    /// # Errors
    ///
    /// Those of the kind.
    fn update(&self, map: &Self::Map, key: &[u8], value: Value<'_, Self>, flags: u64) -> Result<(), Errno>;

    /// Deletes an element.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] and those of the kind.
    fn delete(&self, map: &Self::Map, key: &[u8]) -> Result<(), Errno>;

    /// Takes an element out: deletes it and copies its value.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] and those of the kind.
    fn take(&self, map: &Self::Map, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno>;

    /// Writes the key after `after` into `next`; the first key if there is none before or `after` is not there.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] at the end, and those of the kind.
    fn next_key(&self, map: &Self::Map, after: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno>;

    /// Copies at most `count` elements from a position on; `take` deletes them.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOSPC`] if a bucket has more elements than `count`; those of the kind.
    fn batch(&self, map: &Self::Map, from: Option<&[u8]>, count: usize, take: bool) -> Result<Batch, Errno>;

    /// The bytes of a position in a batch.
    fn batch_position_size(&self, map: &Self::Map) -> usize;

    /// The cookie of the socket that an element of a map of sockets holds.
    fn socket_at(&self, map: &Self::Map, key: &[u8]) -> Option<u64>;

    /// Whether a map of sockets has a caller's socket with that cookie.
    fn holds_socket(&self, map: &Self::Map, cookie: u64) -> bool;

    /// A caller's socket is closed: no element holds it from now on, and no value belongs to it, even in a frozen map.
    fn forget_socket(&self, map: &Self::Map, cookie: u64);

    /// Ends all changes by the host.
    ///
    /// # Errors
    ///
    /// [`Errno::EBUSY`] while somebody may write it through shared memory.
    fn freeze(&self, map: &Self::Map) -> Result<(), Errno>;

    /// Checks a signature by the keys that the host trusts. `log` receives what is wrong with it.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOKEY`], [`Errno::EKEYREJECTED`], [`Errno::EKEYEXPIRED`], [`Errno::ENOPKG`], [`Errno::EBADMSG`].
    fn check_signature(&self, signature: &Signature<'_>, log: &mut dyn FnMut(&str)) -> Result<(), Errno>;

    /// Verifies and compiles a program. `log` receives the verifier's log in Linux's format, if anybody wants it.
    ///
    /// # Errors
    ///
    /// [`Errno::EACCES`] and [`Errno::EINVAL`] for refused programs, and those of Linux otherwise.
    fn load(
        &self,
        request: &ProgramRequest<'_, Self>,
        log: Option<&mut dyn FnMut(&str)>,
    ) -> Result<Self::Program, Errno>;

    /// What is known about a loaded program.
    fn facts(&self, program: &Self::Program) -> ProgramFacts;

    /// The machine code of a program.
    fn machine_code(&self, program: &Self::Program) -> MachineCode;

    /// Begins or ends to count runs of programs and their time, for [`ProgramFacts`].
    fn count_runs(&self, on: bool);

    /// What test runs of programs like this one take.
    fn runs_on(&self, program: &Self::Program) -> RunsOn;

    /// Runs a program as `BPF_PROG_TEST_RUN` does. If that takes long, the client is asked between two runs, every few
    /// milliseconds, whether a signal has come.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOTSUPP`] for types without test runs; those of Linux for the input; [`Errno::EINTR`] if it was
    /// interrupted.
    fn run(
        &self,
        program: &Self::Program,
        request: &RunRequest,
        client: &mut dyn Client,
    ) -> Result<RunAnswer, Errno>;

    /// Whether a program's results say that it runs only where it expects to (`BPF_CGROUP_INET_EGRESS`).
    fn needs_expected_place(&self, program: &Self::Program) -> bool;

    /// The objects that a program of an iterator is shown, by Linux's name; `None` for other programs.
    fn iterates(&self, program: &Self::Program) -> Option<&'static str>;

    /// Whether a program may be shown these objects, as far as that does not depend on what it does.
    ///
    /// # Errors
    ///
    /// [`Errno::EACCES`] if it uses more of an element than there is, or writes where it may not; [`Errno::EINVAL`]
    /// for a map whose elements cannot be shown.
    fn may_show(&self, program: &Self::Program, shown: &Shown<'_, Self>) -> Result<(), Errno>;

    /// Runs a program for each of these objects, and returns all that it wrote.
    ///
    /// # Errors
    ///
    /// Those of [`Engine::may_show`]; [`Errno::E2BIG`] if it writes too much, [`Errno::EAGAIN`] if it asks to be run
    /// again and again.
    fn iterate(&self, program: &Self::Program, shown: &Shown<'_, Self>) -> Result<Vec<u8>, Errno>;

    /// Whether there is a network device of that index.
    fn has_device(&self, index: u32) -> bool;

    /// What a device is to programs of netkit.
    fn netkit(&self, index: u32) -> Netkit;

    /// Whether there is a tracepoint of that name.
    fn has_tracepoint(&self, name: &str) -> bool;

    /// Attaches a program to the function of another one whose type has that number in the other one's types.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if it does not fit, [`Errno::EBUSY`] if the function is replaced or watched already.
    fn attach(
        &self,
        target: &Self::Program,
        function: u32,
        program: &Self::Program,
    ) -> Result<Self::Attachment, Errno>;

    /// Whether anything can be probed. If not, none of the following is asked.
    fn has_probes(&self) -> bool;

    /// What a probe is about.
    fn describe(&self, probe: &Self::Probe) -> ProbeInfo;

    /// The identifier of the program that a probe has.
    fn program_at(&self, probe: &Self::Probe) -> Option<u32>;

    /// Attaches a program to a probe.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for a type of program that does not run there, [`Errno::EACCES`] if it reads more of a record
    /// than there is, [`Errno::EEXIST`] if the probe has a program.
    fn probe(
        &self,
        probe: &Self::Probe,
        program: &Arc<ProgramObject<Self>>,
        cookie: u64,
    ) -> Result<Self::Probing, Errno>;

    /// Attaches a program to functions of the kernel. Without cookies these are 0. Returns the addresses as
    /// well, in ascending order, with the cookie of each.
    ///
    /// # Errors
    ///
    /// [`Errno::ESRCH`] if a name is unknown, [`Errno::EINVAL`] if an address is.
    fn probe_functions(
        &self,
        functions: &Functions,
        when: When,
        program: &ProgramObject<Self>,
        cookies: &[u64],
    ) -> Result<ProbedFunctions<Self::Probing>, Errno>;

    /// Attaches a program to places in a binary. Without cookies these are 0.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] if there is no such binary.
    fn probe_binary(
        &self,
        places: &BinaryPlaces,
        program: &ProgramObject<Self>,
        cookies: &[u64],
    ) -> Result<Self::Probing, Errno>;

    /// Attaches a program to a tracepoint, to run on its arguments; `None` if this tracepoint is never passed.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if it does not fit.
    fn probe_raw(
        &self,
        name: &str,
        program: &ProgramObject<Self>,
        cookie: u64,
    ) -> Result<Option<Self::Probing>, Errno>;

    /// Runs these programs at a place from now on, in this order, in place of those that ran there. This library has
    /// checked their types.
    ///
    /// # Errors
    ///
    /// Those of Linux for the place; then nothing has changed. Without programs there is none.
    fn place(&self, place: &Place, programs: &[&Self::Program]) -> Result<(), Errno>;
}

/// Copies memory of a program: from an address, or [`Errno::EFAULT`].
pub type Memory<'a> = dyn Fn(u64, &mut [u8]) -> Result<(), Errno> + 'a;

/// The client of a test run, as the engine and the running program see it.
pub trait Client {
    /// Whether a signal waits for it.
    fn interrupted(&mut self) -> bool;

    /// The number of its process, and that of its thread, if they are known.
    fn task(&mut self) -> Option<(u32, u32)>;

    /// Copies bytes from its memory.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`] if not all of them can be read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Makes a system call for it: `bpf_sys_bpf`. The attributes are the program's, and so is what they point to:
    /// `memory` copies from there, or fails with [`Errno::EFAULT`].
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for commands that programs may not give; those of the call.
    fn call(&mut self, command: u32, attributes: &[u8], memory: &Memory<'_>) -> Result<i64, Errno>;

    /// Closes a descriptor that this run has made: `bpf_sys_close`.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] for any other.
    fn close(&mut self, descriptor: i32) -> Result<(), Errno>;
}

/// A value to write.
pub enum Value<'a, E: Engine> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A program, for arrays of programs.
    Program(&'a E::Program),
    /// A map, for maps of maps.
    Map(&'a E::Map),
    /// Bytes of a redirection target, and the program that runs there.
    Target(&'a [u8], Option<&'a E::Program>),
    /// A perf event.
    PerfEvent(&'a E::PerfEvent),
    /// A socket of a caller.
    Socket {
        /// What is known of it.
        socket: &'a ClientSocket,
        /// Whether the map has programs for what the socket sends or receives, which no engine sees.
        runs: bool,
    },
}

/// A map to create. Sizes and flags are as the caller gave them.
#[allow(missing_docs, reason = "the names of the system call's own fields")]
pub struct MapRequest<'a, E: Engine> {
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    /// Without those that concern the descriptor.
    pub flags: u32,
    pub name: &'a str,
    pub extra: u64,
    /// The template of inner maps.
    pub inner: Option<&'a E::Map>,
    /// Types, and the numbers of key and value in them.
    pub types: Option<(&'a E::Types, u32, u32)>,
}

/// Elements in a batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// Keys and values, one after the other.
    pub elements: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the next batch begins; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// A program to load.
#[allow(missing_docs, reason = "the names of the system call's own fields")]
pub struct ProgramRequest<'a, E: Engine> {
    pub program_type: u32,
    pub expected_attach_type: u32,
    /// Eight bytes each. Loads of map addresses name maps by their index in `maps` (`BPF_PSEUDO_MAP_IDX` and
    /// `BPF_PSEUDO_MAP_IDX_VALUE`).
    pub insns: &'a [u8],
    pub maps: &'a [Arc<MapObject<E>>],
    pub licence: &'a str,
    pub name: &'a str,
    pub flags: u32,
    pub types: Option<&'a E::Types>,
    pub functions: &'a [FunctionInfo],
    pub lines: &'a [LineInfo],
    /// The type of what it is attached to, and the program that this type belongs to.
    pub attach_type_id: u32,
    pub attach_program: Option<&'a E::Program>,
    /// The level of the log.
    pub log_level: u32,
    /// The signature, which [`Engine::check_signature`] has found right.
    pub signature: Option<Signature<'a>>,
}

/// A detached signature.
#[derive(Clone, Copy, Debug)]
pub struct Signature<'a> {
    /// What it is over: the instructions as the caller passed them.
    pub insns: &'a [u8],
    /// The PKCS#7 message, in DER.
    pub message: &'a [u8],
}

/// `struct bpf_func_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// The function's first instruction.
    pub slot: u32,
    /// Its type.
    pub ty: u32,
}

/// `struct bpf_line_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInfo {
    /// The line's first instruction.
    pub slot: u32,
    /// Offsets of strings in the types: of the file, of the line's text.
    pub file: u32,
    /// The text.
    pub text: u32,
    /// Line in the upper 22 bits, column in the lower 10.
    pub line_and_column: u32,
}

/// `struct bpf_core_relo`: an instruction whose number depends on the kernel's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreRelocation {
    /// The instruction.
    pub slot: u32,
    /// The type of the program's that it is about.
    pub ty: u32,
    /// The offset of a string in the types: the way into the type.
    pub path: u32,
    /// What is asked, a number of `enum bpf_core_relo_kind`.
    pub kind: u32,
}

/// What is known about a loaded program.
#[derive(Clone, Debug, Default)]
pub struct ProgramFacts {
    /// The first eight bytes of the SHA-1 of its instructions.
    pub tag: [u8; 8],
    /// Its instructions as they run, without addresses.
    pub translated: Vec<u8>,
    /// Bytes of its machine code.
    pub compiled: u32,
    /// How many functions it has.
    pub functions: usize,
    /// Instructions that the verifier walked.
    pub verified: u32,
    /// Whether its licence is compatible with the GPL.
    pub gpl_compatible: bool,
    /// Nanoseconds that it ran while statistics were on, and how often.
    pub run_time: u64,
    /// How often it ran while statistics were on.
    pub run_count: u64,
    /// How often it did not run then, because the run around it held a lock.
    pub misses: u64,
}

/// The machine code of a program.
#[derive(Clone, Debug, Default)]
pub struct MachineCode {
    /// The address of its first byte.
    pub address: u64,
    /// The code.
    pub bytes: Vec<u8>,
    /// Where each function begins in it, in ascending order; the first at 0.
    pub functions: Vec<u32>,
    /// Where the code of each instruction begins in it.
    pub slots: Vec<u32>,
}

/// What a test run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// There are no test runs of such programs.
    Nothing,
    /// A packet, and maybe a context.
    Packet,
    /// A context.
    Context,
    /// A context, and nothing may be said of a packet, not even a size.
    ContextAlone,
}

/// A test run.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names of the system call's own fields")]
pub struct RunRequest {
    /// `None` without a buffer.
    pub data: Option<Vec<u8>>,
    pub context: Option<Vec<u8>>,
    /// Whether the caller has room for the context afterwards.
    pub context_out: bool,
    pub repeat: u32,
    pub flags: u32,
    pub cpu: u32,
    pub batch_size: u32,
}

/// What a test run left.
#[derive(Clone, Debug, Default)]
pub struct RunAnswer {
    /// The program's result.
    pub result: u32,
    /// Nanoseconds of one run, on average.
    pub duration: u32,
    /// The packet.
    pub data: Option<Vec<u8>>,
    /// The context.
    pub context: Option<Vec<u8>>,
    /// Whether the context goes back to where it was read, as that of `syscall` programs does.
    pub context_goes_back: bool,
}

/// What a network device is to programs of pairs that only programs connect (`netkit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Netkit {
    /// No end of such a pair.
    No,
    /// The end to which the programs of both ends are attached.
    Primary {
        /// The other end, 0 if it is gone.
        peer: u32,
    },
    /// The other end.
    Peer,
}

/// A place where programs run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A network device's XDP, for one program.
    Xdp {
        /// The device.
        device: u32,
        /// The mode: `XDP_FLAGS_SKB_MODE` and so on, or 0.
        mode: u32,
    },
    /// A network device's packets, for many programs: `BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`, `BPF_NETKIT_PRIMARY`,
    /// `BPF_NETKIT_PEER`.
    Device {
        /// The device.
        index: u32,
        /// The type of attachment.
        attach_type: u32,
    },
    /// A control group. The programs are all that run for it, those of groups around it included.
    ControlGroup {
        /// Its number.
        id: u64,
        /// The type of attachment.
        attach_type: u32,
    },
    /// A network namespace: its dissector of flows, or its look-up of sockets.
    Network {
        /// Its number.
        id: u64,
        /// The type of attachment.
        attach_type: u32,
    },
    /// A map of sockets, by its identifier.
    Sockets {
        /// The map.
        map: u32,
        /// The type of attachment.
        attach_type: u32,
    },
    /// A tracepoint, by its name.
    RawTracepoint(String),
    /// A perf event of a probe or a tracepoint.
    PerfEvent {
        /// What it is about.
        info: ProbeInfo,
        /// What `bpf_get_attach_cookie` returns there.
        cookie: u64,
    },
    /// Functions of the kernel, many at once.
    Functions {
        /// Their addresses, in ascending order.
        addresses: Vec<u64>,
        /// The cookie of each.
        cookies: Vec<u64>,
        /// `BPF_F_KPROBE_MULTI_RETURN`, or 0.
        flags: u32,
    },
    /// Places in a binary, many at once.
    Binary {
        /// The path of its file, as the client gave it.
        path: String,
        /// The places.
        offsets: Vec<u64>,
        /// Where the binary counts who watches them, if it does.
        counters: Vec<u64>,
        /// Their cookies, if they have any.
        cookies: Vec<u64>,
        /// `BPF_F_UPROBE_MULTI_RETURN`, or 0.
        flags: u32,
        /// The process, or 0 for all.
        process: u32,
    },
    /// An iterator.
    Iterator {
        /// The objects that it shows, by Linux's name.
        target: String,
        /// The map whose elements these are, or 0.
        map: u32,
    },
    /// A function of a program. The engine is asked to [`attach`](Engine::attach) there.
    Function {
        /// The program, by its identifier.
        program: u32,
        /// The function, by the number of its type.
        function: u32,
        /// The type of attachment.
        attach_type: u32,
    },
    /// A hook of the packet filter, at one priority.
    Netfilter {
        /// The network namespace.
        network: u64,
        /// The protocol's family.
        family: u32,
        /// The hook.
        hook: u32,
        /// The order.
        priority: i32,
    },
}
