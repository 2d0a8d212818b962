//! Contexts: what programs run on that do not run on packets or buffers.
//!
//! A [`Context`] holds the native structure of a program type ([`skep_abi::Native::Struct`]) or its bytes
//! ([`skep_abi::Native::Bytes`]), and all memory that it leads to:
//!
//! ```text
//!   structure   numbers as the host sets them and the program leaves them
//!               addresses, which each run sets anew ---> data, sockets, flow keys, record   of this context
//! ```
//!
//! Invariant: during a run every address field has the address of memory of this context with at least the size that
//! the verifier assumed, or 0 where the field may be null. The host never sets an address, and no program can write
//! one.

use crate::error::Error;
use crate::image::{Engine, Input};
use crate::packet::{Effects, Redirect, Sysctl};
use crate::program::{Call, Program, WithState};
use crate::run_state::RunState;
use crate::socket::NativeSocket;
use skep_abi::{Context as Seen, ContextField, ContextLayout, FieldKind, Native, ProgramType, StructKind};
use skep_world::Socket;
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Words of `struct bpf_flow_keys`.
const KEYS: usize = 7;

/// What a program runs on whose type is about something else than packets: a socket, a device, a system call.
///
/// ```
/// use skep::{Context, Object, Runtime};
///
/// let insns = skep::isa::assemble(
///     "r1 = *(u32 *)(r1 + 4)   // major
///      r0 = 0
///      if r1 != 8 goto +1
///      r0 = 1
///      exit",
/// )
/// .expect("the text is right");
/// let kind = skep::abi::ProgramType::from_name("cgroup_device").expect("a type");
/// let module = Runtime::new()?.load(&Object::from_insns("only_disks", kind, insns))?;
/// let mut context = Context::new(kind)?;
/// context.set("major", 8)?;
/// assert_eq!(module.programs()[0].run_context(&mut context)?, 1);
/// # Ok::<(), skep::Error>(())
/// ```
///
/// Names of fields are those of the C structure that the type's programs see; `user_ip6[2]` and `regs[14]` are
/// elements of arrays. Numbers that C declares in network byte order are given in network byte order.
#[derive(Debug)]
pub struct Context {
    kind: &'static ProgramType,
    /// The native structure or the bytes.
    words: Vec<u64>,
    /// The sockets of fields, by their native offsets.
    sockets: Vec<(u32, Arc<NativeSocket>)>,
    keys: [u64; KEYS],
    /// The memory of a field whose size the layout says.
    record: Vec<u64>,
    /// What the last run did; the bytes between the addresses of data and its end; the context's own socket.
    effects: Effects,
}

impl Context {
    /// A context for programs of this type, all zeroes.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignType`] for a type that is not in [`skep_abi::TYPES`]; [`Error::NoContext`] for types that run on
    /// packets or buffers, and for those that skep cannot run.
    pub fn new(kind: &'static ProgramType) -> Result<Self, Error> {
        let program_type = kind.name;
        if !skep_abi::TYPES.iter().any(|known| std::ptr::eq(*known, kind)) {
            return Err(Error::ForeignType { program: "of the context".to_owned(), program_type });
        }
        let (bytes, record) = match (kind.native, kind.context) {
            (Some(Native::Struct), Seen::Struct(layout)) => (layout.native_size(), record_size(layout)),
            (Some(Native::Bytes), Seen::Bytes { bytes, .. }) => (bytes, 0),
            _ => return Err(Error::NoContext { program_type }),
        };
        Ok(Self {
            kind,
            words: vec![0; bytes.div_ceil(8) as usize],
            sockets: Vec::new(),
            keys: [0; KEYS],
            record: vec![0; record.div_ceil(8) as usize],
            effects: Effects::default(),
        })
    }

    /// A context for programs of this program's type.
    ///
    /// # Errors
    ///
    /// [`Error::NoContext`].
    pub fn of(program: &Program) -> Result<Self, Error> {
        Self::new(program.program_type())
    }

    /// The type of the programs that it is for.
    pub const fn program_type(&self) -> &'static ProgramType {
        self.kind
    }

    /// Sets a number.
    ///
    /// # Errors
    ///
    /// [`Error::NoField`], which lists the fields; [`Error::FieldValue`] if the number does not fit.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), Error> {
        let field = self.number(name)?;
        let bytes = field.size.bytes();
        if bytes < 8 && value >> (8 * bytes) != 0 {
            return Err(Error::FieldValue { name: name.to_owned(), value, bytes });
        }
        let at = place(field);
        let into = &mut self.bytes_mut()[at..at + bytes as usize];
        let all = value.to_ne_bytes();
        let start = if cfg!(target_endian = "big") { 8 - into.len() } else { 0 };
        into.copy_from_slice(&all[start..start + into.len()]);
        Ok(())
    }

    /// A number as the host set it or a program left it.
    ///
    /// # Errors
    ///
    /// [`Error::NoField`], which lists the fields.
    pub fn field(&self, name: &str) -> Result<u64, Error> {
        let field = self.number(name)?;
        let (at, bytes) = (place(field), field.size.bytes() as usize);
        let mut all = [0; 8];
        let start = if cfg!(target_endian = "big") { 8 - bytes } else { 0 };
        all[start..start + bytes].copy_from_slice(&self.bytes()[at..at + bytes]);
        Ok(u64::from_ne_bytes(all))
    }

    /// Sets the fields of an address, of which `name` is what both families have in common: `user_ip` for `user_ip4`
    /// and
    /// `user_ip6`.
    ///
    /// # Errors
    ///
    /// [`Error::NoField`], which lists the fields.
    pub fn set_address(&mut self, name: &str, address: impl Into<IpAddr>) -> Result<(), Error> {
        match address.into() {
            IpAddr::V4(ip) => self.set(&format!("{name}4"), u32::from_ne_bytes(ip.octets()).into()),
            IpAddr::V6(ip) => {
                let octets = ip.octets();
                let mut words = octets.as_chunks::<4>().0.iter().enumerate();
                words.try_for_each(|(at, word)| {
                    self.set(&format!("{name}6[{at}]"), u32::from_ne_bytes(*word).into())
                })
            }
        }
    }

    /// The bytes of a context that is plain bytes, like a tracepoint's record; for others those of the native
    /// structure.
    pub fn bytes(&self) -> &[u8] {
        bytes_of(&self.words)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytes_of_mut(&mut self.words)
    }

    /// Sets the first bytes of a context that is plain bytes: registers, arguments, a record, the caller's bytes. The
    /// others become 0.
    ///
    /// # Errors
    ///
    /// [`Error::ContextBytes`] if these are too many, or the context is a structure.
    pub fn set_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let most = match self.kind.context {
            Seen::Bytes { bytes, .. } => bytes as usize,
            _ => 0,
        };
        let given = bytes.len();
        if given > most {
            return Err(Error::ContextBytes { program_type: self.kind.name, given, most });
        }
        let (given, others) = self.bytes_mut().split_at_mut(given);
        given.copy_from_slice(bytes);
        others.fill(0);
        Ok(())
    }

    /// Sets the bytes between the type's addresses of data and its end: the packet, the message, the socket option's
    /// value.
    ///
    /// # Errors
    ///
    /// [`Error::NoField`] if the type has no such addresses.
    pub fn set_data(&mut self, data: &[u8]) -> Result<(), Error> {
        if !self.fields().iter().any(|field| field.kind == FieldKind::PacketData) {
            return Err(self.no_field("data"));
        }
        self.effects.data = data.to_vec();
        Ok(())
    }

    /// The bytes that [`Context::set_data`] set, as programs left them.
    pub fn data(&self) -> &[u8] {
        &self.effects.data
    }

    /// Sets the socket of a field like `sk`, or removes it. The context keeps the socket alive. A context that is a
    /// socket itself (`struct bpf_sock`) has it as `sk`, and its fields become the socket's.
    ///
    /// # Errors
    ///
    /// [`Error::NoField`]; [`Error::FieldMissing`] if the field must not be null, or is for full sockets and this
    /// socket is not one.
    pub fn set_socket(&mut self, name: &str, socket: Option<Arc<Socket>>) -> Result<(), Error> {
        if self.is_socket() && name == "sk" {
            self.set_own(socket);
            return Ok(());
        }
        let found = self.fields().iter().find(|field| field.name == name);
        let Some((field, FieldKind::Struct { kind, maybe_null })) = found.map(|field| (field, field.kind))
        else {
            return Err(self.no_field(name));
        };
        if kind == StructKind::FlowKeys {
            return Err(self.no_field(name));
        }
        let native = socket.map(NativeSocket::new);
        let fits =
            native.as_ref().map_or(maybe_null, |native| kind == StructKind::SockCommon || native.is_full());
        if !fits {
            return Err(self.missing(name));
        }
        let at = place(field) as u32;
        self.sockets.retain(|(other, _)| *other != at);
        self.sockets.extend(native.map(|native| (at, native)));
        Ok(())
    }

    /// The socket of a field like `sk`, if it has one.
    pub fn socket(&self, name: &str) -> Option<&Arc<Socket>> {
        if self.is_socket() && name == "sk" {
            return self.effects.own.as_ref().map(|native| native.socket());
        }
        let field = self.fields().iter().find(|field| field.name == name)?;
        let at = place(field) as u32;
        self.sockets.iter().find(|(other, _)| *other == at).map(|(_, native)| native.socket())
    }

    /// Whether the structure is a socket.
    fn is_socket(&self) -> bool {
        matches!(self.kind.context, Seen::Struct(layout) if layout.name == "bpf_sock")
    }

    fn set_own(&mut self, socket: Option<Arc<Socket>>) {
        let native = socket.map(NativeSocket::new);
        let words = native.as_ref().map(|native| native.words()).unwrap_or_default();
        for (to, from) in self.bytes_mut().chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        self.effects.own = native;
    }

    /// The socket that the last run chose: for a packet (`bpf_sk_assign`, `bpf_sk_select_reuseport`) or a message
    /// (`bpf_msg_redirect_map`). The host asks for it if the result says that the packet or message passes.
    pub fn chosen(&self) -> Option<&Arc<Socket>> {
        self.effects.chosen().map(|native| native.socket())
    }

    /// Whether the last run chose this very socket (`BPF_SK_LOOKUP_F_NO_REUSEPORT`).
    pub(crate) fn chosen_alone(&self) -> Option<bool> {
        let sockets = self.effects.sockets.as_ref()?;
        sockets.chosen.as_ref().map(|_| sockets.alone)
    }

    /// Where the last run sends the message, if it passes: [`Redirect::Stream`].
    pub fn redirect(&self) -> Option<Redirect> {
        self.effects.redirect
    }

    /// The address to which the last run bound the context's socket (`bpf_bind`).
    pub fn bound(&self) -> Option<SocketAddr> {
        self.effects.sockets.as_ref()?.bound
    }

    /// For how many bytes of this message and later ones the verdict of the last run is (`bpf_msg_apply_bytes`).
    pub fn apply_bytes(&self) -> Option<u32> {
        self.effects.sockets.as_ref()?.apply
    }

    /// For how many bytes the last run asks to wait before it is run again (`bpf_msg_cork_bytes`).
    pub fn cork_bytes(&self) -> Option<u32> {
        self.effects.sockets.as_ref()?.cork
    }

    /// Sets the result so far of the operation that asks, for `bpf_get_retval`.
    pub fn set_retval(&mut self, value: i32) {
        self.effects.told.retval = value;
    }

    /// The result of the operation as the host set it or a program left it (`bpf_set_retval`). In Linux a program that
    /// refuses the operation makes this `-EPERM` (-1) unless it is a negated error number already.
    pub fn retval(&self) -> i32 {
        self.effects.told.retval
    }

    /// Sets the cookie of the attachment, for `bpf_get_attach_cookie`.
    pub fn set_attach_cookie(&mut self, cookie: u64) {
        self.effects.told.cookie = cookie;
    }

    /// Sets the number of the control group that the program is attached to, for `bpf_get_local_storage`. At first it
    /// is 0.
    pub fn set_attach_cgroup(&mut self, cgroup: u64) {
        self.effects.told.cgroup = cgroup;
    }

    /// Sets the address of the function that the program traces, for `bpf_get_func_ip`; 0, as it is at first, for a
    /// probe
    /// that is not at the start of a function.
    pub fn set_func_ip(&mut self, address: u64) {
        self.effects.told.func_ip = address;
    }

    /// Sets the system setting that is being read or written, for programs of type `cgroup_sysctl`.
    pub fn set_sysctl(&mut self, sysctl: Sysctl) {
        self.effects.told.sysctl = Some(Box::new(sysctl));
    }

    /// The system setting, with the new value as a program left it.
    pub fn sysctl(&self) -> Option<&Sysctl> {
        self.effects.told.sysctl.as_deref()
    }

    /// Says for how many bytes of options a TCP header has room, at most 40: in `BPF_SOCK_OPS_HDR_OPT_LEN_CB` for all,
    /// in `BPF_SOCK_OPS_WRITE_HDR_OPT_CB` for those of programs. [`Context::data`] is the header.
    pub fn set_option_room(&mut self, bytes: u8) {
        self.effects.option_room = u32::from(bytes.min(40));
    }

    /// The room that programs have left: `bpf_reserve_hdr_opt` and `bpf_store_hdr_opt` take from it.
    pub fn option_room(&self) -> u8 {
        self.effects.option_room as u8
    }

    /// The flow keys of a flow dissector: `struct bpf_flow_keys`, 56 bytes.
    pub fn flow_keys(&self) -> &[u8] {
        bytes_of(&self.keys)
    }

    /// The flow keys, mutable.
    pub fn flow_keys_mut(&mut self) -> &mut [u8] {
        bytes_of_mut(&mut self.keys)
    }

    /// The writable record of programs of type `raw_tracepoint_writable`; empty for other types.
    pub fn record_mut(&mut self) -> &mut [u8] {
        bytes_of_mut(&mut self.record)
    }

    fn fields(&self) -> &'static [ContextField] {
        match self.kind.context {
            Seen::Struct(layout) => layout.fields,
            _ => &[],
        }
    }

    /// The number of that name; `NAME[I]` is also the field with the number `I` among those called `NAME`.
    fn number(&self, name: &str) -> Result<&'static ContextField, Error> {
        let numbers = || self.fields().iter().filter(|field| field.kind == FieldKind::Scalar);
        let element = || {
            let (array, index) = name.strip_suffix(']')?.split_once('[')?;
            let index: usize = index.parse().ok()?;
            numbers().filter(|field| field.name == array).nth(index)
        };
        numbers().find(|field| field.name == name).or_else(element).ok_or_else(|| self.no_field(name))
    }

    #[cold]
    fn no_field(&self, name: &str) -> Error {
        let mut known: Vec<_> = self.fields().iter().map(|field| field.name.to_owned()).collect();
        known.dedup();
        Error::NoField { program_type: self.kind.name, name: name.to_owned(), known }
    }

    #[cold]
    fn missing(&self, name: &str) -> Error {
        Error::FieldMissing { program_type: self.kind.name, name: name.to_owned() }
    }

    /// Sets all addresses for a run. Returns those of the context and of the effects.
    pub(crate) fn begin(&mut self, program: &Program) -> Result<(u64, u64), Error> {
        let program_type = program.program_type();
        // Types of one name run on the same native context: `skep-abi` tests that.
        if program.image().input != Input::Context || program_type.name != self.kind.name {
            let given = format!("a context of type {}", self.kind.name);
            return Err(program.wrong_input(format!("an input of type {}", program_type.name), given));
        }
        self.effects.begin();
        // Options are appended in place.
        self.effects.data.reserve(self.effects.option_room as usize);
        let start = self.effects.data.as_mut_ptr().expose_provenance() as u64;
        for field in self.fields() {
            let address = match field.kind {
                FieldKind::Scalar => continue,
                FieldKind::PacketData | FieldKind::PacketMeta => start,
                FieldKind::PacketEnd => start + self.effects.data.len() as u64,
                FieldKind::Struct { kind: StructKind::FlowKeys, .. } => {
                    self.keys.as_mut_ptr().expose_provenance() as u64
                }
                FieldKind::Struct { maybe_null, .. } => {
                    let found = self.sockets.iter().find(|(at, _)| *at as usize == place(field));
                    match found {
                        Some((_, native)) => native.address(),
                        None if maybe_null => 0,
                        None => return Err(self.missing(field.name)),
                    }
                }
                FieldKind::Memory { .. } => self.record.as_mut_ptr().expose_provenance() as u64,
                // Only types of hosts have slices, and those have no such context.
                FieldKind::SliceData { .. } | FieldKind::SliceEnd { .. } => {
                    return Err(self.missing(field.name));
                }
                FieldKind::Object { maybe_null: true, .. } => 0,
                FieldKind::Object { .. } => return Err(self.missing(field.name)),
            };
            self.words[place(field) / 8] = address;
        }
        if self.fields().iter().all(|field| field.kind == FieldKind::Scalar) {
            // SAFETY: the words stay as long as the context, which is borrowed for the run; `end` ends it.
            unsafe { self.effects.let_read(&mut self.words) };
        }
        let effects = (&raw mut self.effects).expose_provenance() as u64;
        Ok((self.words.as_mut_ptr().expose_provenance() as u64, effects))
    }

    /// Removes the addresses after a run, and adopts the socket that it assigned.
    pub(crate) fn end(&mut self) {
        self.effects.hide();
        for field in self.fields() {
            if field.kind == FieldKind::Scalar {
                continue;
            }
            let address = std::mem::take(&mut self.words[place(field) / 8]);
            let Some(sockets) = self.effects.sockets.as_ref() else { continue };
            let Some(chosen) = &sockets.chosen else { continue };
            if matches!(field.kind, FieldKind::Struct { maybe_null: true, .. })
                && chosen.as_ref().map_or(0, NativeSocket::address) == address
            {
                let at = place(field) as u32;
                self.sockets.retain(|(other, _)| *other != at);
                self.sockets.extend(chosen.as_ref().map(|chosen| (at, Arc::clone(chosen))));
            }
        }
    }

    /// The record, if there is one: start, and the length that the verifier assumes.
    #[cfg(test)]
    pub(crate) fn record(&self) -> Option<(u64, u64)> {
        let Seen::Struct(layout) = self.kind.context else { return None };
        let bytes = u64::from(record_size(layout));
        (bytes > 0).then_some((self.record.as_ptr() as u64, bytes))
    }

    /// The memory that the program may access beside the structure: start, length, whether it may be written.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> Vec<(u64, u64, bool)> {
        let at = |start: *const u8, bytes: usize, writable| (start as u64, bytes as u64, writable);
        let mut memory = vec![at(self.keys.as_ptr().cast(), 8 * KEYS, true)];
        if let Seen::Bytes { bytes, writable, .. } = self.kind.context {
            memory.push(at(self.words.as_ptr().cast(), bytes as usize, writable));
        }
        memory
    }
}

impl Program {
    /// Runs it on a context, which it may change. Returns its result; the lower 32 bits are significant.
    ///
    /// # Errors
    ///
    /// [`Error::WrongInput`] for programs that run on packets or buffers, and for a context of another type;
    /// [`Error::FieldMissing`] if a field that must not be null has no socket; [`Error::Slots`] and
    /// [`Error::LockHeld`] as for [`Program::run`].
    pub fn run_context(&self, context: &mut Context) -> Result<u64, Error> {
        self.run_context_with(Engine::Jit, context)
    }

    /// [`Program::run_context`] with a state for functions of the host.
    ///
    /// # Errors
    ///
    /// As [`Program::run_context`], and [`Error::StateMissing`] if they take a state of another type.
    #[inline]
    pub fn run_context_with_state<T: Any>(&self, context: &mut Context, state: &mut T) -> Result<u64, Error> {
        self.with_state(state).run_context(context)
    }

    /// [`Program::run_context`] on the given engine.
    ///
    /// # Errors
    ///
    /// As [`Program::run_context`], and [`Error::Interpret`] as for [`Program::run_with`].
    pub fn run_context_with(&self, engine: Engine, context: &mut Context) -> Result<u64, Error> {
        self.run_context_lending(engine, context, None)
    }

    pub(crate) fn run_context_lending(
        &self,
        engine: Engine,
        context: &mut Context,
        state: Option<&RunState<'_>>,
    ) -> Result<u64, Error> {
        let (address, effects) = context.begin(self)?;
        // SAFETY: the context is of the type that the program was verified for, and is borrowed for the whole run;
        // `begin` has set all addresses in it, to memory that it owns.
        let result = unsafe { self.call(Call::on_context(engine, address, effects).lending(state)) };
        context.end();
        result
    }
}

impl WithState<'_> {
    /// [`Program::run_context`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_context_with_state`].
    pub fn run_context(&mut self, context: &mut Context) -> Result<u64, Error> {
        self.run_context_with(Engine::Jit, context)
    }

    /// [`Program::run_context_with`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_context_with_state`] and [`Program::run_context_with`].
    pub fn run_context_with(&mut self, engine: Engine, context: &mut Context) -> Result<u64, Error> {
        self.program.run_context_lending(engine, context, Some(&self.state))
    }
}

/// Where a field is in the native structure, in bytes: the tables of all types that run say so.
fn place(field: &ContextField) -> usize {
    field.native_offset.unwrap_or(field.offset) as usize
}

/// The size of the memory to which fields lead, in bytes.
fn record_size(layout: &ContextLayout) -> u32 {
    let size = |field: &ContextField| match field.kind {
        FieldKind::Memory { bytes, .. } => bytes,
        _ => 0,
    };
    layout.fields.iter().map(size).max().unwrap_or(0)
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: numbers are initialised bytes, and bytes have no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: as above; any bytes are numbers, and the borrow is passed on.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}
