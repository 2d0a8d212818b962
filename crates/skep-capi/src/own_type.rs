//! Program types of a host's own: a table of the fields of the host's structure, from which contexts are lent.
//!
//! ```text
//!   skep_field { name, kind, bytes, count, flags, offset }  --describe-->  HostType (verifier, header, BTF)
//!   host's struct --offset, kind--> Lending --> the program's C structure --> TakingBack --offset--> host's struct
//! ```
//!
//! Invariant: the runtime compares each field that is lent with the type, so a table that was read once cannot be
//! contradicted by a later one: the plan of a type is copied when the type is made. Pointers are read once in a run:
//! what was lent is what is written back to.

use crate::argument::{bytes, give, name, place, shared};
use crate::load::free;
use crate::options::{self, Options};
use crate::status::{Failure, guard};
use crate::text::{give_text, put};
use skep::Runtime;
use skep::host::{FieldType, HostData, HostType, Lending, StructType, TakingBack, VerdictType};
use skep::isa::Size;
use std::ffi::{c_char, c_int, c_void};

/// `skep_bytes`: a slice in the host's structure.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bytes {
    /// Its first byte.
    pub data: *mut c_void,
    /// How many there are.
    pub size: usize,
}

/// `skep_field`: a field that programs see.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Field {
    /// Its name in C.
    pub name: *const c_char,
    /// `enum skep_field_kind`.
    pub kind: u32,
    /// Bytes of a number, or of what a pointer leads to.
    pub bytes: u32,
    /// Elements of an array; 0 for one number.
    pub count: u32,
    /// A sum of [`Field::FLAGS`].
    pub flags: u32,
    /// Its place in the host's structure.
    pub offset: usize,
    /// Of a pointer to a structure, that one.
    pub of: *const Struct,
}

/// `skep_struct`: a structure that programs see.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Struct {
    /// Its name in C.
    pub name: *const c_char,
    /// Its fields.
    pub fields: *const Field,
    /// How many there are.
    pub count: usize,
}

/// `skep_verdict`: a result with its name.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NamedVerdict {
    /// Its name in C.
    pub name: *const c_char,
    /// Its number.
    pub number: i64,
}

/// `skep_type_options`: what a type is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TypeOptions {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The name in `SEC("...")`.
    pub section: *const c_char,
    /// The context.
    pub context: *const Struct,
    /// The name of the enum of results; null without one.
    pub verdict_name: *const c_char,
    /// The results; null for any number.
    pub verdicts: *const NamedVerdict,
    /// How many there are.
    pub verdict_count: usize,
}

// SAFETY: six words, of which the pointers may be null.
unsafe impl Options for TypeOptions {
    const NAME: &'static str = "skep_type_options";
}

/// A program type of the host's own. Types live as long as the process; this is a handle.
#[derive(Debug)]
pub struct OwnType {
    host: &'static HostType,
    plan: Vec<Plan>,
}

/// How a field is lent.
#[derive(Debug)]
struct Plan {
    offset: usize,
    kind: PlanKind,
    writable: bool,
}

#[derive(Debug)]
enum PlanKind {
    /// Their size in bytes, how many, and whether they are an array.
    Numbers(usize, u32),
    Slice,
    Bytes(usize),
    Struct(Vec<Plan>),
}

/// What methods work on: the host's structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part(pub(crate) *mut c_void);

/// The host's structure during a run.
pub(crate) struct Lent<'a> {
    plan: &'a [Plan],
    base: *mut u8,
    /// The structures that its pointers led to when it was lent, in the order of the fields. A method of the host may
    /// change the pointers during the run; numbers go back to what was lent.
    pointers: Vec<*mut u8>,
}

/// The most structures inside of one another.
const DEEP: usize = 9;
/// The most entries of a list.
const MANY: usize = 4096;

impl Field {
    /// Kinds in the order of `enum skep_field_kind`.
    pub const KINDS: [&'static str; 4] =
        ["SKEP_FIELD_NUMBER", "SKEP_FIELD_SLICE", "SKEP_FIELD_BYTES", "SKEP_FIELD_STRUCT"];
    /// Flags, each half of the next.
    pub const FLAGS: [&'static str; 3] = ["SKEP_FIELD_SIGNED", "SKEP_FIELD_WRITABLE", "SKEP_FIELD_NULLABLE"];
}

impl OwnType {
    pub(crate) fn host(&self) -> &'static HostType {
        self.host
    }

    /// # Safety
    ///
    /// `context` is the host's structure of this type, used by nothing else as long as the result.
    pub(crate) unsafe fn lent(&self, context: *mut c_void) -> Lent<'_> {
        Lent { plan: &self.plan, base: context.cast(), pointers: Vec::new() }
    }
}

/// Entries of a list.
///
/// # Safety
///
/// Null, or readable for as many entries.
unsafe fn list<'a, T>(start: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count > MANY {
        return Err(Failure::argument(format!("{what}: {count} are too many; there may be {MANY}")));
    }
    // SAFETY: the caller's promise.
    unsafe { bytes(start.cast(), count * size_of::<T>(), what)? };
    // SAFETY: as above; it is not null if there are entries.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, count) } })
}

/// # Safety
///
/// As for [`skep_type_new`].
unsafe fn describe(of: *const Struct, depth: usize) -> Result<(StructType, Vec<Plan>), Failure> {
    if depth == DEEP {
        return Err(Failure::argument("skep_struct: it contains itself, or is too deep inside of others"));
    }
    // SAFETY: the caller's promise, to all of it.
    unsafe {
        let of = shared(of, "skep_struct")?;
        let mut made = StructType::new(name(of.name, "skep_struct: name")?);
        let mut plan = Vec::new();
        for field in list(of.fields, of.count, "skep_struct: fields")? {
            let (kind, planned) = describe_field(field, depth)?;
            made = made.field(name(field.name, "skep_field: name")?, kind);
            plan.push(planned);
        }
        Ok((made, plan))
    }
}

/// # Safety
///
/// As for [`skep_type_new`].
unsafe fn describe_field(field: &Field, depth: usize) -> Result<(FieldType, Plan), Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { name(field.name, "skep_field: name")? };
    let wrong = |why: String| Failure::argument(format!("skep_field {name}: {why}"));
    if field.flags >= 1 << Field::FLAGS.len() {
        return Err(wrong(format!("flags are {:#x}", field.flags)));
    }
    let [signed, writable, nullable] = [1, 2, 4].map(|flag| field.flags & flag != 0);
    let (described, kind) = match field.kind {
        0 => {
            let size = match field.bytes {
                1 => Size::B1,
                2 => Size::B2,
                4 => Size::B4,
                8 => Size::B8,
                bytes => return Err(wrong(format!("a number has 1, 2, 4 or 8 bytes, not {bytes}"))),
            };
            let described = match field.count {
                0 => FieldType::Number { size, signed, writable },
                count => FieldType::Numbers { size, signed, count, writable },
            };
            (described, PlanKind::Numbers(field.bytes as usize, field.count.max(1)))
        }
        1 => (FieldType::Slice { writable }, PlanKind::Slice),
        2 => {
            let described = FieldType::Bytes { bytes: field.bytes, writable, nullable };
            (described, PlanKind::Bytes(field.bytes as usize))
        }
        3 => {
            // SAFETY: the caller's promise.
            let (of, plan) = unsafe { describe(field.of, depth + 1)? };
            (FieldType::Struct { of, writable, nullable }, PlanKind::Struct(plan))
        }
        kind => return Err(wrong(format!("{kind} is no kind of a field"))),
    };
    Ok((described, Plan { offset: field.offset, kind, writable }))
}

/// Makes a type.
///
/// # Safety
///
/// `options` is null or readable for the size that it gives, and what it points to is as the header says; `type` is
/// null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_type_new(options: *const TypeOptions, r#type: *mut *mut OwnType) -> c_int {
    guard(|| {
        let to = place(r#type, "skep_type_new: type")?;
        // SAFETY: the caller's promise, to all of it.
        unsafe {
            let none = || Failure::argument("skep_type_new: options is NULL");
            let options = options::read(options)?.ok_or_else(none)?;
            let section = name(options.section, "skep_type_options: section")?;
            let (context, plan) = describe(options.context, 0)?;
            let mut verdict = VerdictType::default();
            if !options.verdict_name.is_null() {
                name(options.verdict_name, "skep_type_options: verdict_name")?.clone_into(&mut verdict.name);
            }
            for one in list(options.verdicts, options.verdict_count, "skep_type_options: verdicts")? {
                let name = name(one.name, "skep_verdict: name")?;
                let small = i32::try_from(one.number);
                let small =
                    small.map_err(|_| Failure::argument(format!("skep_verdict {name}: it has 32 bits")))?;
                verdict.values.push((name.to_owned(), small));
            }
            give(to, OwnType { host: HostType::new(context, section, verdict)?, plan });
        }
        Ok(())
    })
}

/// The C header for authors of programs of this type.
///
/// # Safety
///
/// `type` is null or not freed; `text` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_type_header(r#type: *const OwnType, text: *mut *mut c_char) -> c_int {
    guard(|| {
        let to = place(text, "skep_type_header: text")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give_text(to, &shared(r#type, "skep_type_header: type")?.host.header()) };
        Ok(())
    })
}

/// The name of a verdict; nothing if the type has none of this number.
///
/// # Safety
///
/// `type` is null or not freed; `buffer` is null or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_type_verdict(
    r#type: *const OwnType,
    verdict: i32,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller's promise.
    let verdicts = unsafe { r#type.as_ref() }.map_or(&[][..], |own| &own.host.verdict().values);
    let found = verdicts.iter().find(|(_, number)| *number == verdict);
    // SAFETY: as above.
    unsafe { put(found.map_or("", |(name, _)| name), buffer, size) }
}

/// Frees a handle of a type. Runtimes that have the type keep it.
///
/// # Safety
///
/// `type` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_type_free(r#type: *mut OwnType) {
    // SAFETY: the caller's promise.
    unsafe { free(r#type) };
}

/// The declarations of a runtime's helpers, as C.
///
/// # Safety
///
/// `runtime` is null or not freed; `text` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_header(runtime: *const Runtime, text: *mut *mut c_char) -> c_int {
    guard(|| {
        let to = place(text, "skep_runtime_header: text")?;
        // SAFETY: not null, and the caller's promise.
        unsafe { give_text(to, &shared(runtime, "skep_runtime_header: runtime")?.header()) };
        Ok(())
    })
}

/// # Safety
///
/// The pointers in the host's structure are as its type says, and what they lead to stays for `'r`.
unsafe fn lend<'r>(plan: &[Plan], base: *mut u8, to: &mut Lending<'r>, pointers: &mut Vec<*mut u8>) {
    for Plan { offset, kind, writable } in plan {
        // SAFETY: the field is in the host's structure, whose table says where; it may be at any alignment.
        unsafe {
            let at = base.add(*offset);
            match kind {
                PlanKind::Numbers(bytes, count) => {
                    to.bits_array(*count, |index| read_bits(at, *bytes, index))
                }
                PlanKind::Slice => {
                    let Bytes { data, size } = at.cast::<Bytes>().read_unaligned();
                    match (data.is_null(), isize::try_from(size), *writable) {
                        (true, Ok(0), _) => to.slice_mut(&mut []),
                        (false, Ok(_), true) => {
                            to.slice_mut(std::slice::from_raw_parts_mut(data.cast(), size))
                        }
                        (false, Ok(_), false) => to.slice(std::slice::from_raw_parts(data.cast(), size)),
                        // Nothing is lent, so the run is refused.
                        _ => return,
                    }
                }
                PlanKind::Bytes(bytes) => {
                    let data = at.cast::<*mut u8>().read_unaligned();
                    let given = !data.is_null();
                    match *writable {
                        true => to.bytes_mut(given.then(|| std::slice::from_raw_parts_mut(data, *bytes))),
                        false => to.bytes(given.then(|| std::slice::from_raw_parts(data, *bytes))),
                    }
                }
                PlanKind::Struct(plan) => {
                    let of = at.cast::<*mut u8>().read_unaligned();
                    pointers.push(of);
                    to.nested(!of.is_null(), |to| lend(plan, of, to, pointers));
                }
            }
        }
    }
}

/// # Safety
///
/// As for [`lend`], of the same structure, and `pointers` are those that it found.
unsafe fn take_back(
    plan: &[Plan],
    base: *mut u8,
    from: &mut TakingBack<'_>,
    pointers: &mut impl Iterator<Item = *mut u8>,
) {
    for Plan { offset, kind, .. } in plan {
        // SAFETY: as for `lend`.
        unsafe {
            let at = base.add(*offset);
            match kind {
                PlanKind::Numbers(bytes, _) => {
                    from.bits_array(|index, bits| write_bits(at, *bytes, index, bits))
                }
                PlanKind::Slice | PlanKind::Bytes(_) => from.skip(),
                PlanKind::Struct(plan) => {
                    let of = pointers.next().unwrap_or(std::ptr::null_mut());
                    from.nested(!of.is_null(), |from| take_back(plan, of, from, pointers));
                }
            }
        }
    }
}

/// # Safety
///
/// Readable for the number with that index.
unsafe fn read_bits(at: *const u8, bytes: usize, index: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        let at = at.add(index * bytes);
        match bytes {
            1 => at.read().into(),
            2 => at.cast::<u16>().read_unaligned().into(),
            4 => at.cast::<u32>().read_unaligned().into(),
            _ => at.cast::<u64>().read_unaligned(),
        }
    }
}

/// # Safety
///
/// Writable for the number with that index.
unsafe fn write_bits(at: *mut u8, bytes: usize, index: usize, bits: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let at = at.add(index * bytes);
        match bytes {
            1 => at.write(bits as u8),
            2 => at.cast::<u16>().write_unaligned(bits as u16),
            4 => at.cast::<u32>().write_unaligned(bits as u32),
            _ => at.cast::<u64>().write_unaligned(bits),
        }
    }
}

impl HostData for Lent<'_> {
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
        self.pointers.clear();
        // SAFETY: the promise to `OwnType::lent`.
        unsafe { lend(self.plan, self.base, to, &mut self.pointers) };
    }

    fn take_back(&mut self, from: &mut TakingBack<'_>) {
        // SAFETY: as above; `lend` filled the list.
        unsafe { take_back(self.plan, self.base, from, &mut self.pointers.iter().copied()) };
    }
}
