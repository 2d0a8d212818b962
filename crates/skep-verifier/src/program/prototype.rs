//! Prototypes of kfuncs: what they take and return, from BTF and the names of their parameters.

use crate::program::violation::{Checked, Code, Violation, damaged};
use skep_abi::{
    Access, ArgKind, HelperProto, Kfunc, KfuncFlags, OwnKfunc, OwnParam, OwnReturn, RetKind, SpecialKfunc,
    kfunc_named, machine_type_name, own_kfunc, own_kfunc_number,
};
use skep_btf::{Btf, Error, Kind, Type};
use std::borrow::Cow;

/// A function of the host.
pub(crate) struct Prototype {
    /// What BTF does not say.
    pub(crate) known: &'static Kfunc,
    /// Its name, in the form that checks of memory take.
    pub(crate) proto: HelperProto,
    pub(crate) params: Vec<Param>,
    pub(crate) returned: Returned,
    /// The iterator, for the functions of one.
    pub(crate) iterator: Option<Iterates>,
    /// Whether the runtime provides it, not the host's kernel.
    pub(crate) own: bool,
}

/// An iterator.
#[derive(Clone, Copy)]
pub(crate) struct Iterates {
    /// The type of its structure.
    pub(crate) ty: u32,
    /// How many 8-byte slots of stack it takes.
    pub(crate) slots: u32,
    /// Whether its elements live in read sections only.
    pub(crate) read_section: bool,
}

/// A parameter.
pub(crate) struct Param {
    pub(crate) what: What,
    /// Whether null may be passed.
    pub(crate) nullable: bool,
}

/// What a parameter takes.
pub(crate) enum What {
    /// Anything: it is not looked at.
    Ignored,
    /// A number.
    Number {
        /// Whether it must be the same in every run.
        constant: bool,
    },
    /// The size of the memory before it, which checks it.
    Size,
    /// Memory of that many bytes.
    Fixed { bytes: u32, access: Access },
    /// Memory of the size that the next parameter says.
    Sized { access: Access, constant: bool },
    /// Memory to read, of as many words of eight bytes as the next parameter says; with more than these nothing is
    /// read.
    Words { most: u32 },
    /// An object of that type, or the context that stands for it, or memory of that many bytes if the type consists of
    /// numbers.
    Object { ty: u32, name: String, bytes: Option<(u32, Access)> },
    /// A map.
    Map,
    /// A constant string.
    String,
    /// A dynptr that was made before.
    Dynptr,
    /// An iterator of this type.
    Iterator,
    /// An object that the program allocated and owns.
    Owned,
    /// An object that the program allocated, which counts its owners.
    Counted,
    /// A list or tree.
    Root(Collection),
    /// A node of one.
    Node,
    /// A function that compares two nodes.
    Less,
    /// A CPU mask of the runtime's.
    Mask,
    /// An unsupported type, as it is declared.
    Unknown(String),
}

/// What holds objects by their nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collection {
    List,
    Tree,
}

impl Collection {
    /// That of a structure of this name, if it is the head of one; likewise for nodes.
    fn of(name: &str) -> Option<What> {
        match name {
            "bpf_list_head" => Some(What::Root(Self::List)),
            "bpf_rb_root" => Some(What::Root(Self::Tree)),
            "bpf_list_node" | "bpf_rb_node" => Some(What::Node),
            _ => None,
        }
    }
}

/// What a function returns.
pub(crate) enum Returned {
    Nothing,
    Number,
    /// A pointer to a structure.
    Object(u32),
    /// A CPU mask of the runtime's.
    Mask,
    /// A pointer to that many bytes.
    Memory(u32),
    /// An unsupported type, as it is declared.
    Unknown(String),
}

impl Prototype {
    /// The prototype of the function of that number.
    pub(crate) fn of(btf: &Btf, id: u32) -> Checked<Self> {
        let function = btf.ty(id).ok().filter(|ty| ty.kind == Kind::Func).ok_or_else(|| {
            let text = format!("the given types have no function of number {id}");
            Violation::new(Code::Types, text)
                .suggest("link and verify the program with the same types")
                .in_linux("invalid kernel function call not eliminated in verifier pass")
        })?;
        let name = function.name().map_err(damaged)?;
        let Some(known) = kfunc_named(name) else {
            let text = format!(
                "no table lists the programs that may call the kfunc {name}, and what its result is worth"
            );
            return Err(Violation::new(Code::Helper, text));
        };
        let prototype = btf.prototype(id).map_err(damaged)?;
        Self::read(btf, known, &prototype).map_err(damaged)
    }

    /// The prototype of a function of a runtime's own; `None` where it is not known who may call it.
    pub(crate) fn own(own: &OwnKfunc) -> Option<Self> {
        let known = own.known()?;
        let what = |param: &OwnParam| match param {
            OwnParam::Number => Some(What::Number { constant: false }),
            OwnParam::Iterator(_) => Some(What::Iterator),
            OwnParam::Ignored => Some(What::Ignored),
            OwnParam::Type => Some(What::Number { constant: true }),
            OwnParam::Owned => Some(What::Owned),
            OwnParam::Counted => Some(What::Counted),
            OwnParam::List => Some(What::Root(Collection::List)),
            OwnParam::Tree => Some(What::Root(Collection::Tree)),
            OwnParam::Node => Some(What::Node),
            OwnParam::Less => Some(What::Less),
            OwnParam::Mask => Some(What::Mask),
            OwnParam::Machine(ty) => Some(What::Object {
                ty: *ty,
                name: machine_type_name(*ty).unwrap_or_default().to_owned(),
                bytes: None,
            }),
            // The functions that take one check it themselves.
            OwnParam::Context => Some(What::Ignored),
            OwnParam::Dynptr => Some(What::Dynptr),
            OwnParam::Map => Some(What::Map),
            // Likewise.
            OwnParam::Work | OwnParam::Later => Some(What::Ignored),
            OwnParam::Buffer => Some(What::Sized { access: Access::Write, constant: true }),
            OwnParam::Words { most } => Some(What::Words { most: *most }),
            OwnParam::Size | OwnParam::Count => Some(What::Size),
            OwnParam::Out(bytes) => Some(What::Fixed { bytes: *bytes, access: Access::Write }),
            _ => None,
        };
        let param = |declared: &OwnParam| {
            let what = what(declared).unwrap_or_else(|| What::Unknown(format!("{declared:?}")));
            Param { what, nullable: matches!(declared, OwnParam::Words { .. }) }
        };
        // No type of the host has the number of a function of the runtime, so it tells iterators apart.
        let iterator = own.iterator().and_then(|iterator| {
            let ty = own_kfunc_number(&format!("{}_new", iterator.name))?;
            Some(Iterates { ty, slots: iterator.bytes.div_ceil(8), read_section: read_section(known) })
        });
        let returned = match (own.returns, own.iterator()) {
            (OwnReturn::Nothing, _) => Returned::Nothing,
            (OwnReturn::Number, _) => Returned::Number,
            // The call itself says of which type.
            (OwnReturn::Object, _) => Returned::Object(0),
            (OwnReturn::Mask, _) => Returned::Mask,
            (OwnReturn::Machine(ty), _) => Returned::Object(ty),
            // Likewise, how many.
            (OwnReturn::BytesOrNull, _) => Returned::Memory(0),
            (OwnReturn::ElementOrNull, Some(iterator)) => Returned::Memory(iterator.element),
            (returns, _) => Returned::Unknown(format!("{returns:?}")),
        };
        let proto = HelperProto::new(0, known.name, [ArgKind::None; 5], RetKind::Scalar);
        let params = own.params.iter().map(param).collect();
        Some(Self { known, proto, params, returned, iterator, own: true })
    }

    pub(crate) fn name(&self) -> &str {
        &self.proto.name
    }

    fn read(btf: &Btf, known: &'static Kfunc, prototype: &Type<'_>) -> Result<Self, Error> {
        let declared: Vec<_> = prototype.params().collect();
        let mut params = Vec::with_capacity(declared.len());
        for (at, param) in declared.iter().enumerate() {
            let name = param.name()?;
            let size = match declared.get(at + 1) {
                Some(next) if btf.pointer(next.ty)?.is_none() => Sized::named(next.name()?),
                _ => None,
            };
            let before = at.checked_sub(1).and_then(|before| declared.get(before));
            let sizes = match before {
                Some(before) => Sized::named(name).is_some() && btf.pointer(before.ty)?.is_some(),
                None => false,
            };
            let what = if sizes { What::Size } else { parameter(btf, known, at, param.ty, name, size)? };
            let nullable = name.ends_with("__nullable") || name.ends_with("__opt");
            params.push(Param { what, nullable });
        }
        let iterator = match params.first() {
            Some(Param { what: What::Iterator, .. }) => iterator(btf, known, declared[0].ty)?,
            _ => None,
        };
        let mut proto = HelperProto::new(0, known.name, [ArgKind::None; 5], RetKind::Scalar);
        proto.name = Cow::Borrowed(known.name);
        let returned = result(btf, known, prototype.target())?;
        Ok(Self { known, proto, params, returned, iterator, own: false })
    }
}

/// Whether the function gives the next element of an iterator.
pub(crate) fn is_next(btf: Option<&Btf>, id: u32) -> bool {
    let known = match own_kfunc(id) {
        Some(own) => own.known(),
        None => btf.and_then(|btf| btf.ty(id).ok()?.name().ok()).and_then(kfunc_named),
    };
    known.is_some_and(|known| known.flags.has(KfuncFlags::ITER_NEXT))
}

/// The registers of its arguments, one bit each.
pub(crate) fn arguments(btf: Option<&Btf>, id: u32) -> u16 {
    match prototype(btf, id) {
        Some(prototype) if prototype.params.len() < 5 => (2 << prototype.params.len()) - 2,
        _ => u16::MAX,
    }
}

fn prototype(btf: Option<&Btf>, id: u32) -> Option<Prototype> {
    match own_kfunc(id) {
        Some(own) => Prototype::own(own),
        None => btf.and_then(|btf| Prototype::of(btf, id).ok()),
    }
}

/// By argument: whether the function looks at memory there, and at how many bytes if that is known.
pub(crate) fn memory_arguments(btf: Option<&Btf>, id: u32) -> impl Iterator<Item = Option<Option<u32>>> {
    let prototype = prototype(btf, id);
    (0..5).map(move |at| {
        let Some(prototype) = &prototype else { return Some(None) };
        match prototype.params.get(at)?.what {
            What::Ignored | What::Number { .. } | What::Size | What::Map => None,
            What::Fixed { bytes, .. } => Some(Some(bytes)),
            What::Dynptr => Some(Some(16)),
            What::Iterator => Some(prototype.iterator.map(|iterator| 8 * iterator.slots)),
            What::Object { bytes, .. } => Some(bytes.map(|(bytes, _)| bytes)),
            What::Owned | What::Counted | What::Root(_) | What::Node | What::Less | What::Mask => None,
            What::Sized { .. } | What::Words { .. } | What::String | What::Unknown(_) => Some(None),
        }
    })
}

/// Whether the host's function of that number calls a function of the program before it returns.
pub(crate) fn calls_back(btf: Option<&Btf>, id: u32) -> bool {
    if let Some(own) = own_kfunc(id) {
        return own.calls_back();
    }
    let name = || btf?.ty(id).ok().filter(|ty| ty.kind == Kind::Func)?.name().ok();
    name().and_then(kfunc_named).is_some_and(|known| known.flags.has(KfuncFlags::CALLS_BACK))
}

/// How the size of memory is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sized {
    Variable,
    Constant,
}

impl Sized {
    fn named(name: &str) -> Option<Self> {
        match name {
            _ if name.ends_with("__szk") => Some(Self::Constant),
            _ if name.ends_with("__sz") => Some(Self::Variable),
            _ => None,
        }
    }
}

/// What a parameter takes that is no size.
fn parameter(
    btf: &Btf,
    known: &Kfunc,
    at: usize,
    ty: u32,
    name: &str,
    size: Option<Sized>,
) -> Result<What, Error> {
    let ends = |suffix| name.ends_with(suffix);
    if ends("__ign") || ends("__prog") {
        return Ok(What::Ignored);
    }
    let unknown = || Ok(What::Unknown(format!("{} {name}", btf.type_name(ty)?)));
    let Some(pointer) = btf.pointer(ty)? else {
        return match btf.resolve(ty)?.kind {
            Kind::Int | Kind::Enum | Kind::Enum64 => {
                Ok(What::Number { constant: ends("__k") || ends("__szk") })
            }
            _ => unknown(),
        };
    };
    if ends("__map") {
        return Ok(What::Map);
    }
    if ends("__str") {
        return Ok(What::String);
    }
    if ends("__alloc") {
        return Ok(What::Owned);
    }
    if ends("__refcounted_kptr") {
        return Ok(What::Counted);
    }
    if ends("__irq_flag") {
        return unknown();
    }
    let access = if points_to_constant(btf, ty)? { Access::Read } else { Access::Write };
    if let Some(size) = size {
        return Ok(What::Sized { access, constant: size == Sized::Constant });
    }
    let to = btf.ty(pointer.to)?;
    match to.kind {
        Kind::Struct | Kind::Union => match to.name()? {
            "bpf_dynptr" | "bpf_dynptr_kern" => Ok(What::Dynptr),
            of if of.starts_with("bpf_iter_") && (ends("__iter") || (at == 0 && iterates(known))) => {
                Ok(What::Iterator)
            }
            of => {
                let collection = known.special == SpecialKfunc::Collection;
                if let Some(what) = Collection::of(of).filter(|_| collection) {
                    return Ok(what);
                }
                let plain = holds_numbers(btf, to.id, 0)?;
                let bytes = if plain { to.size().map(|size| (size, access)) } else { None };
                Ok(What::Object { ty: to.id, name: of.to_owned(), bytes })
            }
        },
        Kind::Int | Kind::Enum | Kind::Enum64 => Ok(What::Fixed { bytes: btf.size(to.id)?, access }),
        Kind::FuncProto if known.flags.has(KfuncFlags::CALLS_BACK) => Ok(What::Less),
        // What the call does with it is special to that function.
        _ if known.special != SpecialKfunc::None => Ok(What::Ignored),
        _ => unknown(),
    }
}

fn iterates(known: &Kfunc) -> bool {
    [KfuncFlags::ITER_NEW, KfuncFlags::ITER_NEXT, KfuncFlags::ITER_DESTROY]
        .into_iter()
        .any(|flag| known.flags.has(flag))
}

fn iterator(btf: &Btf, known: &Kfunc, ty: u32) -> Result<Option<Iterates>, Error> {
    let Some(pointer) = btf.pointer(ty)? else { return Ok(None) };
    if !iterates(known) {
        return Ok(None);
    }
    let slots = btf.size(pointer.to)?.div_ceil(8);
    Ok(Some(Iterates { ty: pointer.to, slots, read_section: read_section(known) }))
}

/// Whether the elements of an iterator live in read sections only: the function that makes it says so.
fn read_section(known: &Kfunc) -> bool {
    let base = known.name.rsplit_once('_').map_or(known.name, |(base, _)| base);
    kfunc_named(&format!("{base}_new")).is_some_and(|made| made.flags.has(KfuncFlags::RCU_PROTECTED))
}

fn result(btf: &Btf, known: &Kfunc, ty: u32) -> Result<Returned, Error> {
    let Some(pointer) = btf.pointer(ty)? else {
        return Ok(match btf.resolve(ty)?.kind {
            Kind::Void => Returned::Nothing,
            Kind::Int | Kind::Enum | Kind::Enum64 => Returned::Number,
            _ => Returned::Unknown(btf.type_name(ty)?),
        });
    };
    let to = btf.ty(pointer.to)?;
    Ok(match to.kind {
        Kind::Struct | Kind::Union => Returned::Object(to.id),
        // An address of nothing that is known, such as one in an arena, is a number.
        Kind::Void => Returned::Number,
        Kind::Int if known.flags.has(KfuncFlags::RET_MEMORY) => Returned::Memory(btf.size(to.id)?),
        _ => Returned::Unknown(btf.type_name(ty)?),
    })
}

/// Whether what a pointer points to is declared `const`.
fn points_to_constant(btf: &Btf, pointer: u32) -> Result<bool, Error> {
    let mut at = btf.resolve(pointer)?.target();
    for _ in 0..skep_btf::MAX_CHAIN {
        let ty = btf.ty(at)?;
        match ty.kind {
            Kind::Const => return Ok(true),
            kind if kind.is_modifier() => at = ty.target(),
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// The deepest structures in structures that are looked into.
const MAX_DEPTH: u32 = 4;

/// Whether a type consists of numbers, so that a program's own memory may stand for it.
pub(crate) fn holds_numbers(btf: &Btf, ty: u32, depth: u32) -> Result<bool, Error> {
    let ty = btf.resolve(ty)?;
    match ty.kind {
        Kind::Int | Kind::Enum | Kind::Enum64 | Kind::Float => Ok(true),
        Kind::Array => match ty.array() {
            Some(array) => holds_numbers(btf, array.element, depth),
            None => Ok(false),
        },
        Kind::Struct | Kind::Union if depth < MAX_DEPTH => {
            for member in ty.members() {
                if !holds_numbers(btf, member.ty, depth + 1)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}
