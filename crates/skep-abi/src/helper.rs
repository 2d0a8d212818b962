//! Helper prototypes: what the verifier requires of a call's arguments and knows of its result.

use crate::context::StructKind;
use crate::helpers::{PACKET_MEMORY, linux_helper, map_helpers};
use crate::map::MapKind;
use crate::types::ProgramType;
use std::borrow::Cow;

/// How a helper uses memory that is passed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The helper reads it: every byte must be readable and initialised.
    Read,
    /// The helper fills it: it must be writable, and is initialised afterwards.
    Write,
    /// The helper reads and writes it.
    ReadWrite,
}

impl Access {
    /// How the helper uses a value if the map is of that kind. A value that is an output for other kinds is an
    /// input for a bloom filter.
    pub const fn in_map(self, kind: MapKind) -> Self {
        match kind {
            MapKind::BloomFilter => Self::Read,
            _ => self,
        }
    }
}

/// What an argument of a helper must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArgKind {
    /// Not an argument: the register is ignored.
    None,
    /// Any initialised value. Pointers are accepted only if the program type may leak them.
    Anything,
    /// A value for a format. It may be uninitialised if the format does not use it. The verifier records what kind
    /// of value it is ([`crate::Printed`]).
    Printed,
    /// A number.
    Scalar,
    /// The constant 0: flags of a helper that defines none yet.
    Zero,
    /// The program's context, unchanged.
    Context,
    /// The program's context, unchanged, or null.
    ContextOrNull,
    /// A map.
    Map,
    /// Readable memory of the key size of the preceding `Map` argument.
    MapKey,
    /// Memory of the value size of the preceding `Map` argument. See [`Access::in_map`].
    MapValue(Access),
    /// Memory whose size is the next argument, an [`ArgKind::Size`].
    Memory {
        /// How the helper uses it.
        access: Access,
        /// Whether a null pointer may be passed, with size 0.
        nullable: bool,
    },
    /// The program's context, for a helper that is only for programs of a host's own type ([`HelperProto::only`]): it
    /// works on what is lent with the context.
    HostContext,
    /// Memory of fixed size.
    FixedMemory {
        /// How the helper uses it.
        access: Access,
        /// Size in bytes.
        bytes: u32,
    },
    /// Size in bytes of the memory argument before it.
    Size {
        /// Whether zero is allowed.
        zero: bool,
    },
    /// A NUL-terminated string in read-only map memory (`.rodata`).
    ConstString,
    /// A format in read-only map memory, for the [`ArgKind::Values`] that follow ([`crate::parse_format`]).
    Format,
    /// Values of 64 bits for a format, or null. Their size in bytes is the next argument, an [`ArgKind::Size`].
    Values,
    /// Memory of the value size of the preceding `Map` argument, or null.
    MapValueOrNull(Access),
    /// A pointer to or into a value of the preceding `Map` argument's map: the map value itself, not a copy.
    ValueOf,
    /// The size of the memory that the helper returns ([`RetKind::MemoryOrNull`]); a constant.
    AllocationSize,
    /// Memory that an acquiring helper returned and this helper releases: a record of a ring buffer.
    Record,
    /// A function of the program that the helper calls.
    Callback(Callback),
    /// What the helper passes on to the callback: an address in the stack, or null.
    CallbackContext,
    /// A `struct bpf_spin_lock` in a map's value.
    SpinLock {
        /// Whether the helper takes the lock; otherwise it releases it.
        takes: bool,
    },
    /// A `struct bpf_timer` in a map's value.
    Timer,
    /// A field of a map's value that holds a reference to an object of the host.
    KptrField,
    /// A `struct bpf_dynptr` in the stack.
    Dynptr(DynptrArg),
    /// A structure with a stable layout that the host handed out.
    Struct {
        /// Any of these kinds is accepted.
        kinds: &'static [StructKind],
        /// Whether null may be passed.
        nullable: bool,
    },
    /// An object of the host, by the name of its C type. As in Linux, a program may pass a pointer that it found by
    /// following others, so the object may be gone and the address arbitrary. A helper that cannot rule this out
    /// must use probe loads, as programs do.
    Object {
        /// Any of these C types is accepted.
        types: &'static [&'static str],
        /// Whether null may be passed.
        nullable: bool,
    },
    /// A socket: a structure with a stable layout, one of `kinds`, or an object of the host whose C type is one of
    /// `types`. An object that only a read-side critical section keeps alive is not accepted.
    StructOrObject {
        /// Any of these structures is accepted.
        kinds: &'static [StructKind],
        /// Any of these C types is accepted.
        types: &'static [&'static str],
        /// Whether null may be passed.
        nullable: bool,
    },
    /// The address of a host's variable that exists once per CPU.
    PerCpuVariable,
    /// An object that an acquiring helper returned and this helper releases.
    Released {
        /// Whether null may be passed.
        nullable: bool,
    },
}

/// How a helper calls the callback that it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Callback {
    /// `long f(u32 index, void *context)`, for `bpf_loop`: 0 continues, 1 stops.
    Loop,
    /// `long f(map, key, value, context)`, for each element of the map: 0 continues, 1 stops.
    ForEach,
    /// `int f(map, key, value)`, later, when the timer of a map's value expires.
    Timer,
    /// `long f(task, area, context)`, once, for the memory area that was found.
    FindArea,
    /// `long f(dynptr, context)`, for each record of a user ring buffer: 0 continues, 1 stops.
    Drain,
    /// `bool f(a, b)`, for nodes of a tree while its lock is held: whether `a` is less.
    Less,
    /// `int f(u64 value, void *context)`, as often as a host's own helper likes: any result.
    Host,
}

impl Callback {
    /// The smallest and the greatest result that it may return.
    pub const fn results(self) -> (i32, i32) {
        match self {
            Self::Loop | Self::ForEach | Self::Drain | Self::FindArea | Self::Less => (0, 1),
            Self::Timer => (0, 0),
            Self::Host => (i32::MIN, i32::MAX),
        }
    }
}

/// What a helper requires of a `struct bpf_dynptr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DynptrArg {
    /// 16 bytes of stack that hold no dynptr. The helper constructs one over this memory.
    Make(DynptrKind),
    /// An initialised dynptr, read-only or not.
    Any,
    /// An initialised dynptr that may be written.
    Writable,
    /// A dynptr over a ring buffer record, which the helper releases.
    Release,
}

/// The memory behind a `struct bpf_dynptr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DynptrKind {
    /// A map's value or other memory that stays valid.
    Local,
    /// A ring buffer record, which must be released.
    Ringbuf,
    /// A socket buffer.
    Skb,
    /// An XDP packet.
    Xdp,
}

/// What a helper returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetKind {
    /// An unknown number.
    Scalar,
    /// A number in a range, both ends included.
    Range {
        /// Smallest.
        min: i64,
        /// Greatest.
        max: i64,
    },
    /// At most the size in the [`ArgKind::Size`] argument, or a negated error number.
    SizeOrError,
    /// The value of the map given as the `Map` argument, or null.
    MapValueOrNull,
    /// The value of the map given as the `Map` argument: never null.
    MapValue,
    /// Memory whose size the [`ArgKind::AllocationSize`] argument gives, or null.
    MemoryOrNull,
    /// Dynptr slice: memory behind the dynptr argument, of the size in the argument after its offset, or null.
    DynptrDataOrNull,
    /// A structure with a stable layout.
    Struct {
        /// The structure.
        kind: StructKind,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// An object of the host.
    Object {
        /// The name of its C type.
        of: &'static str,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// One CPU's copy of the per-CPU variable whose address was passed; its type is the argument's.
    PerCpuVariable {
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The object that the [`ArgKind::KptrField`] held, or null; the caller owns it.
    KptrOrNull,
    /// Nothing: `r0` is unreadable afterwards.
    Void,
    /// Does not return: a tail call either leaves the program or falls through with `r0` unreadable.
    TailCall,
}

/// The prototype of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperProto {
    /// Its number in the call instruction.
    pub id: u32,
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its arguments, `r1` to `r5`.
    pub args: [ArgKind; 5],
    /// Its result.
    pub ret: RetKind,
    /// Whether only programs under a GPL-compatible licence may call it.
    pub gpl_only: bool,
    /// Whether it may move or resize the packet: the call invalidates every packet pointer.
    pub moves_packet: bool,
    /// Whether its result must be released exactly once on every path.
    pub acquires: bool,
    /// Whether it may sleep: only sleepable programs may call it, and only outside of read-side critical sections.
    pub sleeps: bool,
    /// The only program type whose programs may call it, compared by address: it works on what such a program was lent.
    /// `None` for all types, as far as they allow it.
    pub only: Option<&'static ProgramType>,
    /// Further properties that decide how a call is checked.
    pub flags: HelperFlags,
    /// The names of the program types that may call a host's own helper; `None` is all.
    pub only_for: Option<Vec<&'static str>>,
}

/// Properties of a helper beyond its arguments and its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HelperFlags(u8);

impl HelperFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// It returns the object that it receives as another type; the result lives as long as the argument.
    pub const CAST: Self = Self(1);
    /// The object that it returns stays alive until the program ends.
    pub const TRUSTED_RESULT: Self = Self(1 << 1);
    /// It writes through its dynptr. If the dynptr is over a packet, the packet may move.
    pub const WRITES_DYNPTR: Self = Self(1 << 2);
    /// It changes elements, so it cannot be used on maps that are read-only for programs.
    pub const WRITES_ELEMENTS: Self = Self(1 << 3);
    /// It copies elements out, so it cannot be used on maps that are write-only for programs.
    pub const READS_ELEMENTS: Self = Self(1 << 4);
    /// It stores any element. Only some program types may use it on maps of sockets ([`crate::SocketMaps`]).
    pub const STORES_SOCKETS: Self = Self(1 << 5);
    /// It deletes any element. Only some program types may use it on maps of sockets ([`crate::SocketMaps`]).
    pub const DELETES_SOCKETS: Self = Self(1 << 6);
    /// The tasks and cgroups that it takes and returns are those of a runtime's machine ([`crate::MACHINE_FIELDS`]),
    /// not a host's structures of these names. A helper of a host's own must not have it.
    pub const MACHINE: Self = Self(1 << 7);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The number of `bpf_tail_call`, which engines implement themselves: no linkage has it.
pub const TAIL_CALL: u32 = 12;

impl HelperProto {
    /// The prototype of a helper that acquires nothing, leaves packets in place and is open to all licences.
    pub const fn new(id: u32, name: &'static str, args: [ArgKind; 5], ret: RetKind) -> Self {
        Self {
            id,
            name: Cow::Borrowed(name),
            args,
            ret,
            gpl_only: false,
            moves_packet: false,
            acquires: false,
            sleeps: false,
            only: None,
            flags: HelperFlags::NONE,
            only_for: None,
        }
    }

    /// How it calls a function of the program, if it calls one.
    pub fn callback(&self) -> Option<Callback> {
        self.args.iter().find_map(|arg| match arg {
            ArgKind::Callback(callback) => Some(*callback),
            _ => None,
        })
    }

    /// Whether it calls a function of the program before it returns.
    pub fn calls_back(&self) -> bool {
        self.callback().is_some_and(|callback| callback != Callback::Timer)
    }

    /// Whether it takes or releases a lock.
    pub fn is_of_lock(&self) -> bool {
        self.args.iter().any(|arg| matches!(arg, ArgKind::SpinLock { .. }))
    }

    /// Whether it works on maps of that kind: for Linux's helpers as in Linux, for a host's own helpers always.
    pub fn works_on(&self, kind: MapKind) -> bool {
        !self.is_of_linux() || map_helpers(kind).contains(self.id) || !self.args.contains(&ArgKind::Map)
    }

    /// Whether memory arguments may point into the packet: for Linux's helpers as in Linux, for a host's own
    /// helpers if they do not move the packet.
    pub fn takes_packet(&self) -> bool {
        if self.is_of_linux() { PACKET_MEMORY.contains(self.id) } else { !self.moves_packet }
    }

    /// Whether it is Linux's helper, by number and name.
    pub fn is_of_linux(&self) -> bool {
        linux_helper(self.id).is_some_and(|linux| linux.name == self.name)
    }

    /// Restricts it to programs under a GPL-compatible licence.
    pub(crate) const fn gpl(mut self) -> Self {
        self.gpl_only = true;
        self
    }

    /// Marks that it invalidates packet pointers.
    pub(crate) const fn moves(mut self) -> Self {
        self.moves_packet = true;
        self
    }

    /// Marks that its result must be released.
    pub(crate) const fn acquiring(mut self) -> Self {
        self.acquires = true;
        self
    }

    /// Adds those flags.
    pub(crate) const fn with(mut self, flags: HelperFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Restricts it to places where sleeping is allowed.
    pub(crate) const fn sleeping(mut self) -> Self {
        self.sleeps = true;
        self
    }
}
