//! Helper prototypes: what the verifier demands of a call's arguments and learns of its result.

use crate::context::StructKind;
use crate::helpers::{PACKET_MEMORY, linux_helper, map_helpers};
use crate::map::MapKind;
use std::borrow::Cow;

/// What happens to memory that is passed to a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The helper reads it: every byte must be readable and initialised.
    Read,
    /// The helper fills it: it must be writable, and is initialised afterwards.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// What happens to a value where the map is of that kind: what a helper copies from others, a bloom filter is asked
    /// for.
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
    /// Not an argument: the register is not looked at.
    None,
    /// Any initialised value; pointers only where the program type lets them leak.
    Anything,
    /// A value for a format: looked at only where the format names it, so it may be uninitialised. What it is, is taken
    /// down ([`crate::Printed`]).
    Printed,
    /// A number.
    Scalar,
    /// The constant 0: flags of a helper that has none yet.
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
    /// Memory whose size is the next argument, a [`ArgKind::Size`].
    Memory {
        /// What the helper does with it.
        access: Access,
        /// Whether a null pointer may be passed (the size must then be 0).
        nullable: bool,
    },
    /// Memory of fixed size.
    FixedMemory {
        /// What the helper does with it.
        access: Access,
        /// Bytes.
        bytes: u32,
    },
    /// Size in bytes of the memory argument before it.
    Size {
        /// Whether zero is allowed.
        zero: bool,
    },
    /// A NUL-terminated string in read-only map memory (`.rodata`).
    ConstString,
    /// A format in read-only map memory, for the [`ArgKind::Values`] behind it ([`crate::parse_format`]).
    Format,
    /// Values of 64 bits for a format, or null: their size in bytes is the next argument, a [`ArgKind::Size`].
    Values,
    /// Memory of the value size of the preceding `Map` argument, or null.
    MapValueOrNull(Access),
    /// The value of the preceding `Map` argument's map, or a pointer into one: the map value itself, not a copy.
    ValueOf,
    /// The size, the same in every run, of the memory that the helper returns ([`RetKind::MemoryOrNull`]).
    AllocationSize,
    /// Memory that an acquiring helper returned and this one takes back: a record of a ring buffer.
    Record,
    /// A function of the program that the helper calls.
    Callback(Callback),
    /// What the helper hands on to the callback: an address in the stack, or null.
    CallbackContext,
    /// A `struct bpf_spin_lock` in a map's value.
    SpinLock {
        /// Whether the helper takes the lock; else it releases it.
        takes: bool,
    },
    /// A `struct bpf_timer` in a map's value.
    Timer,
    /// A field of a map's value that holds a reference to a host's object.
    KptrField,
    /// A `struct bpf_dynptr` in the stack.
    Dynptr(DynptrArg),
    /// A structure with a stable layout that the host handed out: one of these. `nullable`: or null.
    Struct {
        /// Any of them will do.
        kinds: &'static [StructKind],
        /// Whether null may be passed.
        nullable: bool,
    },
    /// An object of the host, by the name of its C type. `nullable`: or null. As in Linux, a program may pass a
    /// pointer that it found by following others: the object may be gone, and the address be any. A helper that
    /// cannot know better reads it by loads that may fault, as programs do.
    Object {
        /// Any of these C types will do.
        types: &'static [&'static str],
        /// Whether null may be passed.
        nullable: bool,
    },
    /// A structure with a stable layout, one of `kinds`, or an object of the host whose C type is one of `types`:
    /// what stands for a socket. An object that only a read section keeps alive will not do. `nullable`: or null.
    StructOrObject {
        /// Any of these structures will do.
        kinds: &'static [StructKind],
        /// Any of these C types will do.
        types: &'static [&'static str],
        /// Whether null may be passed.
        nullable: bool,
    },
    /// The address of a host's variable that exists once per CPU.
    PerCpuVariable,
    /// An object that an acquiring helper returned and this one takes back (`nullable`: or null).
    Released {
        /// Whether null may be passed.
        nullable: bool,
    },
}

/// How a helper calls the function it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Callback {
    /// `long f(u32 index, void *context)`, for `bpf_loop`: 0 goes on, 1 stops.
    Loop,
    /// `long f(map, key, value, context)`, for each element of the map: 0 goes on, 1 stops.
    ForEach,
    /// `int f(map, key, value)`, later, when the timer of a map's value expires.
    Timer,
    /// `long f(task, area, context)`, once, for the memory area that was looked for.
    FindArea,
    /// `long f(dynptr, context)`, for each record of a ring buffer that user space filled: 0 goes on, 1 stops.
    Drain,
}

impl Callback {
    /// The smallest and the greatest result that it may have.
    pub const fn results(self) -> (i32, i32) {
        match self {
            Self::Loop | Self::ForEach | Self::Drain | Self::FindArea => (0, 1),
            Self::Timer => (0, 0),
        }
    }
}

/// What a helper demands of a `struct bpf_dynptr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DynptrArg {
    /// 16 bytes of stack in which there is none; the helper makes one over this.
    Make(DynptrKind),
    /// One that was made before, read-only or not.
    Any,
    /// One that was made before and may be written.
    Writable,
    /// One over a ring buffer's record, which is given back.
    Release,
}

/// What a `struct bpf_dynptr` is a view of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DynptrKind {
    /// A map's value or other memory that stays.
    Local,
    /// A record of a ring buffer, which must be given back.
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
    /// A number of which nothing is known.
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
    /// Memory of the size that the [`ArgKind::AllocationSize`] argument says, or null.
    MemoryOrNull,
    /// Memory that a dynptr argument shows, of the size in the argument after its offset, or null.
    DynptrDataOrNull,
    /// A structure with a stable layout.
    Struct {
        /// Which.
        kind: StructKind,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// An object of the host.
    Object {
        /// Its C type.
        of: &'static str,
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The copy of a per-CPU variable that belongs to one CPU: what the argument's type says.
    PerCpuVariable {
        /// Whether it may be null.
        maybe_null: bool,
    },
    /// The object that was in the [`ArgKind::KptrField`], or null; the caller owns it.
    KptrOrNull,
    /// Nothing: `r0` is unreadable afterwards.
    Void,
    /// Does not return: the tail call either leaves the program or falls through with `r0` unreadable.
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
    /// Whether it may move or resize the packet: every packet pointer is lost.
    pub moves_packet: bool,
    /// Whether what it returns must be given back exactly once on every path.
    pub acquires: bool,
    /// Whether it may sleep: only sleepable programs may call it, and not inside a read section.
    pub sleeps: bool,
    /// What else decides how a call is checked.
    pub flags: HelperFlags,
}

/// What a helper does that its arguments and its result do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HelperFlags(u8);

impl HelperFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// It returns the object that it is given, seen as another type: the result lives as long.
    pub const CAST: Self = Self(1);
    /// The object that it returns stays alive as long as the program runs.
    pub const TRUSTED_RESULT: Self = Self(1 << 1);
    /// It writes through its dynptr. If that shows a packet, the packet may move.
    pub const WRITES_DYNPTR: Self = Self(1 << 2);
    /// It changes elements: not in maps that are read-only for programs.
    pub const WRITES_ELEMENTS: Self = Self(1 << 3);
    /// It copies elements out: not from maps that are write-only for programs.
    pub const READS_ELEMENTS: Self = Self(1 << 4);
    /// It stores any element: in maps of sockets only for some types of programs ([`crate::SocketMaps`]).
    pub const STORES_SOCKETS: Self = Self(1 << 5);
    /// It deletes any element: from maps of sockets only for some types of programs ([`crate::SocketMaps`]).
    pub const DELETES_SOCKETS: Self = Self(1 << 6);

    /// Whether all of `other`'s are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl HelperProto {
    /// A prototype of a helper that acquires, moves and restricts nothing.
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
            flags: HelperFlags::NONE,
        }
    }

    /// How it calls a function of the program, if it does.
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

    /// Whether it works on maps of that kind: what Linux says for its own helpers, yes for a host's.
    pub fn works_on(&self, kind: MapKind) -> bool {
        !self.is_of_linux() || map_helpers(kind).contains(self.id) || !self.args.contains(&ArgKind::Map)
    }

    /// Whether memory arguments may point into the packet: what Linux says for its own helpers, for a host's whatever
    /// does not move the packet.
    pub fn takes_packet(&self) -> bool {
        if self.is_of_linux() { PACKET_MEMORY.contains(self.id) } else { !self.moves_packet }
    }

    /// Whether it is Linux's, by number and name.
    pub fn is_of_linux(&self) -> bool {
        linux_helper(self.id).is_some_and(|linux| linux.name == self.name)
    }

    /// Only for programs under a GPL-compatible licence.
    pub(crate) const fn gpl(mut self) -> Self {
        self.gpl_only = true;
        self
    }

    /// After it, no packet pointer holds.
    pub(crate) const fn moves(mut self) -> Self {
        self.moves_packet = true;
        self
    }

    /// Its result must be given back.
    pub(crate) const fn acquiring(mut self) -> Self {
        self.acquires = true;
        self
    }

    /// With those flags.
    pub(crate) const fn with(mut self, flags: HelperFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Only where sleeping is allowed.
    pub(crate) const fn sleeping(mut self) -> Self {
        self.sleeps = true;
        self
    }
}
