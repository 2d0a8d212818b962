//! Prototypes of a host's functions from an object file, for tools that do not have the functions.
//!
//! The file is compiled by `clang -target bpf -g -Dstatic= -x c -c` from a header with declarations as BPF programs use
//! them:
//!
//! ```c
//! static unsigned int (*const count)(const void *bytes, unsigned long size, unsigned char wanted) = (void *) 1000;
//! ```
//!
//! Without `static`, each is a global variable: its value is the number, and its type is in the file's BTF.
//!
//! | C type of an argument | what programs pass |
//! |---|---|
//! | integer, enumeration, `_Bool` | a number |
//! | `T *` with a size | memory of that size: readable if `const`, writable with the tag `out`, else both |
//! | `void *` with the tag `bytes:N` | memory of N bytes, likewise |
//! | `void *` and an integer | memory, and its size in bytes; with the tag `or_null` also null and 0 |
//! | `void *` with the tag `map`, `struct bpf_map *` | a map |
//! | `void *` with the tag `context`, `struct xdp_md *`, `struct __sk_buff *` | the program's context |
//! | a function's address and a pointer | a function `int f(u64 value, void *context)`, and what it gets |
//!
//! Tags are `__attribute__((btf_type_tag("...")))` behind the type pointed to; they need clang 14 or later.

use super::memory;
use crate::error::Error;
use crate::object::Object;
use crate::shared::Helper;
use skep_abi::{Access, ArgKind, HelperProto, RetKind, RunEnv};
use skep_btf::{Btf, Kind, Type};
use std::ops::Deref;
use std::sync::Arc;

/// Structures that are contexts of programs.
const CONTEXTS: [&str; 2] = ["xdp_md", "__sk_buff"];
const MAP: &str = "bpf_map";
/// The most bytes of one argument.
const MOST: u32 = 1 << 20;

/// Prototypes of functions that a host provides ([`RuntimeBuilder::declare`](crate::RuntimeBuilder::declare),
/// [`VerifyOptions::host`](crate::VerifyOptions::host)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prototypes(Vec<HelperProto>);

impl Prototypes {
    /// The prototypes that an object file declares: its global variables that are pointers to functions. Other
    /// variables are not looked at.
    ///
    /// The file is compiled by `clang -target bpf -g -Dstatic= -x c -c` from a header as
    /// [`Runtime::header`](crate::Runtime::header) writes it:
    ///
    /// ```c
    /// static unsigned int (*const count)(const void *bytes, unsigned long size, unsigned char wanted) = (void *) 1000;
    /// ```
    ///
    /// | C type of an argument | what programs pass |
    /// |---|---|
    /// | integer, enumeration, `_Bool` | a number |
    /// | `T *` with a size | memory of that size: readable if `const`, writable with the tag `out`, else both |
    /// | `void *` with the tag `bytes:N` | memory of N bytes, likewise |
    /// | `void *` and an integer | memory, and its size in bytes; with the tag `or_null` also null and 0 |
    /// | `void *` with the tag `map`, `struct bpf_map *` | a map |
    /// | `void *` with the tag `context`, `struct xdp_md *`, `struct __sk_buff *` | the program's context |
    /// | a function's address and a pointer | a function `int f(u64 value, void *context)`, and what it gets |
    ///
    /// A tag is `__attribute__((btf_type_tag("...")))` behind the type that is pointed to.
    ///
    /// # Errors
    ///
    /// [`Error::Prototype`] if the file has no types, declares nothing, or has a declaration that is none of these.
    pub fn of_object(object: &Object) -> Result<Self, Error> {
        let failed = |name: &str, why: String| Error::Prototype { name: name.to_owned(), why };
        let types = object
            .types()
            .ok_or_else(|| failed("", "the file has no types: compile it with -g".to_owned()))?;
        let mut found = Vec::new();
        for variable in object.variables() {
            let Some(signature) = signature(types, &variable.name) else { continue };
            let contents = object.elf().and_then(|elf| elf.maps()[variable.map].initial.as_deref());
            let value = contents.and_then(|bytes| bytes.get(variable.offset..variable.offset + 8));
            let id = value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
            let id = u32::try_from(id).ok().filter(|id| (1..=i32::MAX as u32).contains(id));
            let id =
                id.ok_or_else(|| failed(&variable.name, "its value is no number of a function".into()))?;
            let read = prototype(types, signature, id, &variable.name);
            found.push(read.map_err(|why| failed(&variable.name, why))?);
        }
        if found.is_empty() {
            let why = "the file declares no function: compile a header of declarations with -Dstatic=";
            return Err(failed("", why.to_owned()));
        }
        Ok(Self(found))
    }
}

impl Deref for Prototypes {
    type Target = [HelperProto];

    fn deref(&self) -> &[HelperProto] {
        &self.0
    }
}

/// A function that returns `result` and fills with zeroes what it should fill. `None` if the prototype allows another
/// result only.
pub(crate) fn stub(proto: &HelperProto, result: i64) -> Option<Helper> {
    let allowed = match proto.ret {
        RetKind::Range { min, max } => (min..=max).contains(&result),
        RetKind::Scalar | RetKind::Void => true,
        _ => false,
    };
    let fills = proto.args.iter().enumerate().filter_map(|(at, kind)| match *kind {
        ArgKind::FixedMemory { access: Access::Write, bytes } => Some((at, Size::Bytes(bytes as usize))),
        ArgKind::Memory { access: Access::Write, .. } => Some((at, Size::Next)),
        _ => None,
    });
    let owned = Arc::new(Stub { result: result as u64, fills: fills.collect() });
    let (proto, call) = (proto.clone(), Some(call_stub as _));
    allowed.then_some(Helper {
        proto,
        call,
        owned: Some(owned),
        takes: None,
        of_host: true,
        may_panic: false,
    })
}

/// What a stub does.
struct Stub {
    result: u64,
    /// The arguments that it fills.
    fills: Vec<(usize, Size)>,
}

#[derive(Clone, Copy)]
enum Size {
    Bytes(usize),
    /// The next argument says.
    Next,
}

unsafe extern "C" fn call_stub(r1: u64, r2: u64, r3: u64, r4: u64, r5: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: this is the implementation of stubs alone, which own a `Stub`; `env` is the run's.
    let stub = unsafe { super::owner::<Stub>(env) };
    let args = [r1, r2, r3, r4, r5, 0];
    for &(at, size) in &stub.fills {
        let bytes = match size {
            Size::Bytes(bytes) => bytes,
            Size::Next => args[at + 1] as usize,
        };
        // SAFETY: the verifier proved so many bytes writable, by the prototype that `fills` was made of.
        unsafe { memory::write(&vec![0; bytes], args[at]) };
    }
    stub.result
}

/// The function type of a variable that is a pointer to a function.
fn signature<'a>(types: &'a Btf, variable: &str) -> Option<Type<'a>> {
    function(types, types.variable(variable)?)
}

/// The function type behind a pointer.
fn function(types: &Btf, pointer: u32) -> Option<Type<'_>> {
    let to = types.pointer(pointer).ok()??.to;
    types.ty(to).ok().filter(|to| to.kind == Kind::FuncProto)
}

fn prototype(types: &Btf, signature: Type<'_>, id: u32, name: &str) -> Result<HelperProto, String> {
    let params: Vec<u32> = signature.params().map(|param| param.ty).collect();
    let mut kinds = Vec::new();
    let mut left = params.as_slice();
    while let Some((&param, rest)) = left.split_first() {
        let at = kinds.len() + 1;
        let wrong = |why: &str| format!("argument {at}: {why}");
        let (mine, taken) = arguments(types, param, rest.first().copied()).map_err(|why| wrong(&why))?;
        kinds.extend_from_slice(&mine[..taken]);
        left = &left[taken..];
    }
    let mut args = [ArgKind::None; 5];
    if kinds.len() > args.len() {
        return Err(format!("it takes {} arguments: a function takes at most five", kinds.len()));
    }
    args[..kinds.len()].copy_from_slice(&kinds);
    let mut proto = HelperProto::new(id, "", args, result(types, signature.target())?);
    proto.name = name.to_owned().into();
    proto.moves_packet = proto.calls_back();
    Ok(proto)
}

/// The kind of an argument, and of the next one if they belong together. How many these are.
fn arguments(types: &Btf, param: u32, next: Option<u32>) -> Result<([ArgKind; 2], usize), String> {
    let one = |kind| Ok(([kind, ArgKind::None], 1));
    if is_number(types, param) {
        return one(ArgKind::Scalar);
    }
    let damaged = |error: skep_btf::Error| error.to_string();
    let pointer = types.pointer(param).map_err(damaged)?;
    let pointer = pointer.ok_or("it is neither a number nor an address")?;
    if function(types, param).is_some() {
        let context = next.is_some_and(|next| matches!(types.pointer(next), Ok(Some(_))));
        let both = [ArgKind::Callback(skep_abi::Callback::Host), ArgKind::CallbackContext];
        return if context { Ok((both, 2)) } else { Err("a function is followed by its context".into()) };
    }
    let target = if pointer.to == 0 { None } else { Some(types.ty(pointer.to).map_err(damaged)?) };
    let name = target.filter(|target| target.kind.is_composite() || target.kind == Kind::Fwd);
    let name = name.and_then(|target| target.name().ok()).unwrap_or_default();
    if pointer.is("map") || name == MAP {
        return one(ArgKind::Map);
    }
    if pointer.is("context") || CONTEXTS.contains(&name) {
        return one(ArgKind::Context);
    }
    let access = match (pointer.is("out"), is_const(types, param)) {
        (true, true) => return Err("what is filled is not const".into()),
        (true, false) => Access::Write,
        (false, true) => Access::Read,
        (false, false) => Access::ReadWrite,
    };
    let tagged = pointer.tags.iter().find_map(|tag| tag.strip_prefix("bytes:"));
    let bytes = match (tagged, target) {
        (Some(tag), _) => Some(tag.parse().map_err(|_| format!("{tag} is no number of bytes"))?),
        (None, Some(_)) => Some(types.size(pointer.to).map_err(damaged)?),
        (None, None) => None,
    };
    match bytes {
        Some(bytes) if (1..=MOST).contains(&bytes) => one(ArgKind::FixedMemory { access, bytes }),
        Some(bytes) => Err(format!("memory of {bytes} bytes: it has at least 1 and at most {MOST}")),
        None if next.is_some_and(|next| is_number(types, next)) => {
            let memory = ArgKind::Memory { access, nullable: pointer.is("or_null") };
            Ok(([memory, ArgKind::Size { zero: true }], 2))
        }
        None => Err("a void pointer needs a size: the next argument, or host_bytes(N)".into()),
    }
}

fn is_number(types: &Btf, ty: u32) -> bool {
    types.resolve(ty).is_ok_and(|ty| ty.kind == Kind::Int || ty.kind.is_enum())
}

/// Whether what the pointer points to is const.
fn is_const(types: &Btf, pointer: u32) -> bool {
    let Ok(pointer) = types.resolve(pointer) else { return false };
    let mut at = pointer.target();
    for _ in 0..32 {
        match types.ty(at) {
            Ok(ty) if ty.kind == Kind::Const => return true,
            Ok(ty) if ty.kind.is_modifier() => at = ty.target(),
            // C has no const arrays: their elements are.
            Ok(ty) if ty.kind == Kind::Array => at = ty.array().map_or(0, |array| array.element),
            _ => return false,
        }
    }
    false
}

fn result(types: &Btf, ty: u32) -> Result<RetKind, String> {
    if ty == 0 {
        return Ok(RetKind::Void);
    }
    let ty = types.resolve(ty).map_err(|error| error.to_string())?;
    let number = ty.kind == Kind::Int || ty.kind.is_enum();
    let bytes = ty.size().filter(|_| number).ok_or("it returns neither a number nor nothing")?;
    if ty.int().is_some_and(|int| int.is_bool) {
        return Ok(RetKind::Range { min: 0, max: 1 });
    }
    let bits = 8 * bytes;
    Ok(match (ty.is_signed(), bits) {
        (_, 64..) | (_, 0) => RetKind::Scalar,
        (true, _) => RetKind::Range { min: -(1 << (bits - 1)), max: (1 << (bits - 1)) - 1 },
        (false, _) => RetKind::Range { min: 0, max: (1 << bits) - 1 },
    })
}
