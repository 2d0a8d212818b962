//! Helpers of a host in C: a prototype as data, a function with a context, and what the function may ask of the call.
//!
//! ```text
//!   program -- r1..r5, proved by the prototype --> skep (copies memory) --> skep_value[] --> the host's function
//!           <-- r0, cut to the range of its result ------------------------- int64_t <------'
//! ```
//!
//! Invariant: a function sees as many values as its prototype has parameters, each valid during the call.

use crate::argument::{name, shared};
use crate::builder::Builder;
use crate::options::{self, Options};
use crate::own_type::{OwnType, Part};
use crate::status::{Failure, guard};
use crate::text::put;
use crate::user::{DropFn, User};
use skep::Map;
use skep::function::{Given, Invocation, Parameter, Prototype, Returns};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

/// `skep_param`: what an argument is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Param {
    /// `enum skep_param_kind`; 0 ends the list.
    pub kind: u32,
    /// Of memory of fixed size, its bytes.
    pub bytes: u32,
}

/// `skep_value`: an argument of a call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Value {
    /// A number.
    pub number: u64,
    /// Memory, a map, or the context.
    pub data: *mut c_void,
    /// Bytes of memory.
    pub size: usize,
}

/// What the host's function is: the context of the helper, the call, the arguments. Returns the result.
pub type HelperFn = Option<unsafe extern "C" fn(*mut c_void, *mut HelperCall<'_>, *const Value) -> i64>;

/// `skep_helper`: a function that programs call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HelperOptions {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Its name.
    pub name: *const c_char,
    /// Its number.
    pub id: u32,
    /// `enum skep_result`.
    pub result: u32,
    /// Its parameters.
    pub params: [Param; 5],
    /// The function.
    pub call: HelperFn,
    /// Its first argument.
    pub context: *mut c_void,
    /// Frees `context`.
    pub free_context: DropFn,
}

// SAFETY: words and halves of words without padding; null is a value of each pointer.
unsafe impl Options for HelperOptions {
    const NAME: &'static str = "skep_helper";
}

/// A call of a helper in progress.
pub struct HelperCall<'a> {
    invocation: &'a Invocation<'a>,
    given: &'a mut [Given<'a>],
}

impl std::fmt::Debug for HelperCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HelperCall").field("invocation", self.invocation).finish_non_exhaustive()
    }
}

/// The state of a run: the host's pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatePointer(pub(crate) *mut c_void);

impl Param {
    /// Kinds in the order of `enum skep_param_kind`.
    pub const KINDS: [&'static str; 12] = [
        "SKEP_PARAM_NONE",
        "SKEP_PARAM_NUMBER",
        "SKEP_PARAM_MEMORY",
        "SKEP_PARAM_MEMORY_OUT",
        "SKEP_PARAM_MEMORY_INOUT",
        "SKEP_PARAM_BYTES",
        "SKEP_PARAM_BYTES_INOUT",
        "SKEP_PARAM_BYTES_OR_NULL",
        "SKEP_PARAM_BYTES_INOUT_OR_NULL",
        "SKEP_PARAM_MAP",
        "SKEP_PARAM_PACKET",
        "SKEP_PARAM_CALLBACK",
    ];

    fn parameter(self) -> Result<Parameter, Failure> {
        use skep::abi::Access::{Read, ReadWrite, Write};
        let memory = |access| Parameter::Memory { bytes: self.bytes, access };
        let bytes = |writable, nullable| Parameter::Bytes { writable, nullable };
        Ok(match self.kind {
            1 => Parameter::Number,
            2 => memory(Read),
            3 => memory(Write),
            4 => memory(ReadWrite),
            5 => bytes(false, false),
            6 => bytes(true, false),
            7 => bytes(false, true),
            8 => bytes(true, true),
            9 => Parameter::Map,
            10 => Parameter::Packet,
            11 => Parameter::Callback,
            kind => return Err(Failure::argument(format!("skep_helper: {kind} is no kind of a parameter"))),
        })
    }
}

impl HelperOptions {
    /// Results in the order of `enum skep_result`.
    pub const RESULTS: [&'static str; 11] = [
        "SKEP_RESULT_NOTHING",
        "SKEP_RESULT_ERRNO",
        "SKEP_RESULT_BOOL",
        "SKEP_RESULT_U8",
        "SKEP_RESULT_U16",
        "SKEP_RESULT_U32",
        "SKEP_RESULT_U64",
        "SKEP_RESULT_I8",
        "SKEP_RESULT_I16",
        "SKEP_RESULT_I32",
        "SKEP_RESULT_I64",
    ];

    fn returns(&self) -> Result<Returns, Failure> {
        Ok(match self.result {
            0 => Returns::Nothing,
            1 => Returns::OrErrno,
            2 => Returns::Bool,
            of @ 3..=6 => Returns::Integer { bytes: 1 << (of - 3), signed: false },
            of @ 7..=10 => Returns::Integer { bytes: 1 << (of - 7), signed: true },
            of => return Err(Failure::argument(format!("skep_helper: {of} is no kind of a result"))),
        })
    }
}

/// A helper that was read and checked, with its context.
pub(crate) struct Made {
    name: String,
    id: u32,
    parameters: Vec<Parameter>,
    returns: Returns,
    call: unsafe extern "C" fn(*mut c_void, *mut HelperCall<'_>, *const Value) -> i64,
    user: User,
}

/// Reads a helper. From here on its context is freed, whatever happens.
///
/// # Safety
///
/// As for `skep_builder_helper`.
pub(crate) unsafe fn read(given: *const HelperOptions, what: &str) -> Result<Made, Failure> {
    // SAFETY: the caller's promise.
    let options = unsafe { options::read(given) };
    let options = options.inspect_err(|_| {
        // Options of a newer header: what this library knows of them says how to free the context.
        // SAFETY: the caller's promise.
        if let Some(known) = unsafe { options::read_known(given) } {
            drop(User::new(known.context, known.free_context));
        }
    })?;
    let options = options.ok_or_else(|| Failure::argument(format!("{what}: helper is NULL")))?;
    let user = User::new(options.context, options.free_context);
    // SAFETY: the caller's promise.
    let name = unsafe { name(options.name, "skep_helper: name")? }.to_owned();
    let call = options.call.ok_or_else(|| Failure::argument(format!("skep_helper {name}: call is NULL")))?;
    let parameters = options.params.into_iter().take_while(|param| param.kind != 0);
    let parameters = parameters.map(Param::parameter).collect::<Result<_, _>>()?;
    Ok(Made { name, id: options.id, parameters, returns: options.returns()?, call, user })
}

impl Made {
    pub(crate) fn add_to(self, builder: &mut Builder) -> Result<(), Failure> {
        if self.id == 0 {
            return Err(Failure::argument(format!(
                "skep_helper {}: its id is 0; give it a number",
                self.name
            )));
        }
        let (name, id) = (self.name.clone(), self.id);
        let prototype = Prototype::new(&self.parameters, self.returns).map_err(|error| self.wrong(&error))?;
        builder.change(|inner| inner.dynamic_function(id, &name, &prototype, self.body()))
    }

    pub(crate) fn add_method_to(mut self, builder: &mut Builder, own: &OwnType) -> Result<(), Failure> {
        if self.id != 0 {
            let text = format!("skep_helper {}: methods are called by name; set id to 0", self.name);
            return Err(Failure::argument(text));
        }
        self.parameters.insert(0, Parameter::Host);
        let name = self.name.clone();
        let prototype = Prototype::new(&self.parameters, self.returns).map_err(|error| self.wrong(&error))?;
        builder.change(|inner| inner.dynamic_method(own.host(), &name, &prototype, self.body()))
    }

    fn wrong(&self, error: &skep::Error) -> Failure {
        Failure::argument(format!("skep_helper {}: {error}", self.name))
    }

    fn body(self) -> impl Fn(&Invocation<'_>, &mut [Given<'_>]) -> i64 + Send + Sync + 'static {
        move |invocation, given| {
            let mut values = [Value { number: 0, data: std::ptr::null_mut(), size: 0 }; 6];
            for (value, given) in values.iter_mut().zip(given.iter_mut()) {
                *value = Value::of(given);
            }
            // SAFETY: shortens the lifetimes of what the call has: both live until the function returns.
            let mut call = unsafe {
                HelperCall {
                    invocation: &*std::ptr::from_ref(invocation).cast(),
                    given: &mut *std::ptr::from_mut(given),
                }
            };
            // SAFETY: the caller's promise about the function and its context: any thread, these arguments.
            unsafe { (self.call)(self.user.get(), &raw mut call, values.as_ptr()) }
        }
    }
}

impl Value {
    fn of(given: &mut Given<'_>) -> Self {
        let (mut number, mut data, mut size) = (0, std::ptr::null_mut::<c_void>(), 0);
        match given {
            Given::Number(value) => number = *value,
            Given::Bytes(Some(bytes)) => (data, size) = (bytes.as_mut_ptr().cast(), bytes.len()),
            Given::Map(map) => data = std::ptr::from_ref::<Map>(map).cast_mut().cast(),
            Given::Host(part) => {
                data = part.get::<Part>().map_or(std::ptr::null_mut(), |part| part.0);
            }
            // Their functions ask the call; null has no bytes.
            _ => {}
        }
        Self { number, data, size }
    }
}

/// The name of the calling program.
///
/// # Safety
///
/// `call` is null or the call in progress; `buffer` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_call_program(
    call: *const HelperCall<'_>,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller's promise, to all.
    unsafe { put(call.as_ref().map_or("", |call| call.invocation.program()), buffer, size) }
}

/// The virtual CPU of the run.
///
/// # Safety
///
/// `call` is null or the call in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_call_cpu(call: *const HelperCall<'_>) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { call.as_ref() }.map_or(0, |call| call.invocation.cpu())
}

/// The state of the run, or null.
///
/// # Safety
///
/// `call` is null or the call in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_call_state(call: *const HelperCall<'_>) -> *mut c_void {
    // SAFETY: the caller's promise.
    let call = unsafe { call.as_ref() };
    call.and_then(|call| call.invocation.state::<StatePointer>())
        .map_or(std::ptr::null_mut(), |state| state.0)
}

/// Bytes of the packet that a parameter `SKEP_PARAM_PACKET` is; 0 without one.
///
/// # Safety
///
/// `call` is null or the call in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_call_packet_size(call: *const HelperCall<'_>) -> usize {
    // SAFETY: the caller's promise.
    let packet = unsafe { call.as_ref() }.and_then(HelperCall::packet);
    packet.map_or(0, skep::function::PacketView::len)
}

/// Copies bytes of the packet.
///
/// # Safety
///
/// `call` is null or the call in progress; `to` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_call_packet_read(
    call: *const HelperCall<'_>,
    offset: usize,
    to: *mut c_void,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let call = unsafe { shared(call, "skep_call_packet_read: call")? };
        let no_packet = || Failure::argument("skep_call_packet_read: the helper has no SKEP_PARAM_PACKET");
        let packet = call.packet().ok_or_else(no_packet)?;
        let mut bytes = vec![0; size.min(packet.len())];
        if bytes.len() < size || !packet.read(offset, &mut bytes) {
            let text = format!("skep_call_packet_read: {size} bytes from {offset} of {}", packet.len());
            return Err(Failure::argument(text));
        }
        if size > 0 {
            let to =
                NonNull::new(to).ok_or_else(|| Failure::argument("skep_call_packet_read: to is NULL"))?;
            // SAFETY: not null, and the caller's promise.
            unsafe { to.as_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), size) };
        }
        Ok(())
    })
}

/// Calls the program's function that a parameter `SKEP_PARAM_CALLBACK` is.
///
/// # Safety
///
/// `call` is null or the call in progress, used by nothing else meanwhile; `result` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_call_back(call: *mut HelperCall<'_>, value: u64, result: *mut i32) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let call = unsafe { crate::argument::exclusive(call, "skep_call_back: call")? };
        let callback = call.given.iter_mut().find_map(|given| match given {
            Given::Callback(callback) => Some(callback),
            _ => None,
        });
        let none = || Failure::argument("skep_call_back: the helper has no SKEP_PARAM_CALLBACK");
        let returned = callback.ok_or_else(none)?.call(value).map_err(|_| Failure::ended())?;
        if !result.is_null() {
            // SAFETY: not null, and the caller's promise.
            unsafe { result.write(returned) };
        }
        Ok(())
    })
}

impl HelperCall<'_> {
    fn packet(&self) -> Option<&skep::function::PacketView<'_>> {
        self.given.iter().find_map(|given| match given {
            Given::Packet(packet) => Some(packet),
            _ => None,
        })
    }
}
