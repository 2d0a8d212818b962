//! What types refer to.
//!
//! Each type is resolved after those it refers to, by a walk with a stack of its own. Two kinds of walk end at
//! different types, so that a structure may hold a pointer to itself, and must not hold itself:
//!
//! ```text
//!   by value     structure -> member, array -> element     ends at pointers
//!   by pointer   pointer -> what it points to              ends at structures and arrays
//! ```
//!
//! Typedefs and qualifiers belong to both. What is found out about a type, its base and size, is kept by its number.

use super::{CheckFault, Checked, Malformed, hold, is_identifier, of, ty_name};
use crate::btf::Btf;
use crate::header::u32_at;
use crate::types::{Int, Kind, Member, Type};

/// The most types on the way from one to another that is not resolved yet.
const DEEPEST: usize = 32;
/// The most bits of a bit field of an enumeration.
const ENUM_BITS: u32 = 32;

/// How far a walk goes.
#[derive(Clone, Copy, PartialEq)]
enum Walk {
    /// Neither a pointer nor a structure was met.
    Open,
    ByValue,
    ByPointer,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    /// On the stack.
    Begun,
    Done,
}

/// What is known of a type.
#[derive(Clone, Copy)]
struct Known {
    state: State,
    /// The type behind typedefs and qualifiers; 0 is `void`.
    base: u32,
    /// Its size, if it has one and is its own base.
    size: Option<u32>,
    tags: Tags,
}

/// The tags on the way from a type to its base.
#[derive(Clone, Copy, PartialEq)]
enum Tags {
    None,
    /// Before all typedefs and qualifiers.
    First,
    /// Behind one of them.
    Late,
}

pub(super) fn check(btf: &Btf) -> Checked {
    let unknown = Known { state: State::New, base: 0, size: None, tags: Tags::None };
    let mut types = References { btf, known: vec![unknown; btf.len() as usize] };
    (btf.first()..btf.len()).try_for_each(|id| types.resolve(id))
}

struct References<'a> {
    btf: &'a Btf,
    known: Vec<Known>,
}

impl<'a> References<'a> {
    /// Resolves a type, and before it what it refers to.
    fn resolve(&mut self, id: u32) -> Checked {
        if self.known[id as usize].state == State::Done {
            return Ok(());
        }
        let mut walk = Walk::Open;
        // Types on the way, and how many of their references were followed.
        let mut way = vec![(self.begin(id)?, 0)];
        while let Some((ty, next)) = way.last_mut() {
            let ty = *ty;
            walk = match (walk, ty.kind) {
                (_, Kind::Datasec) => Walk::Open,
                (Walk::Open, Kind::Ptr) => Walk::ByPointer,
                (Walk::Open, Kind::Array | Kind::Struct | Kind::Union) => Walk::ByValue,
                (walk, _) => walk,
            };
            let Some(target) = reference(&ty, *next) else {
                self.finish(&ty)?;
                way.pop();
                continue;
            };
            *next += 1;
            // A pointer may have led to a typedef, and not to the array behind it.
            let behind = |id: u32| self.known.get(id as usize).filter(|known| known.state == State::Done);
            let target = behind(target).map_or(target, |known| known.base);
            let Ok(target) = self.btf.ty(target) else { return Err(of(&ty, "Invalid type_id")) };
            // No loop, but a reference that may not be: those of structures and arrays are looked at behind the walk.
            let alone = matches!(ty.kind, Kind::Ptr | Kind::Var) || ty.kind.is_modifier();
            hold(!(alone && target.kind == Kind::Var), &ty, "Invalid type_id")?;
            if target.id == 0 || !goes_on(walk, target.kind) {
                continue;
            }
            match self.known[target.id as usize].state {
                State::Done => {}
                State::Begun => {
                    return Err(Malformed { fault: CheckFault::Endless, ..of(&ty, "Loop detected") });
                }
                State::New if way.len() == DEEPEST => {
                    let reason = "Exceeded max resolving depth";
                    return Err(Malformed { fault: CheckFault::Deep, ..of(&ty, reason) });
                }
                State::New => way.push((self.begin(target.id)?, 0)),
            }
        }
        Ok(())
    }

    fn begin(&mut self, id: u32) -> Result<Type<'a>, Malformed> {
        self.known[id as usize].state = State::Begun;
        self.btf.ty(id).map_err(|_| super::whole("Invalid type_id"))
    }

    /// Checks a type whose references are resolved, as far as the walk went.
    fn finish(&mut self, ty: &Type<'a>) -> Checked {
        let (base, size) = match ty.kind {
            kind if kind.is_modifier() => {
                let target = self.target(ty)?;
                (self.base(target), None)
            }
            Kind::Ptr => {
                self.target(ty)?;
                // What a pointer leads to has its tags before typedefs and qualifiers.
                hold(self.tags(ty.word) != Tags::Late, ty, "Type tags don't precede modifiers")?;
                (ty.id, ty.size())
            }
            Kind::Array => (ty.id, Some(self.array(ty)?)),
            Kind::Struct | Kind::Union => {
                ty.members().try_for_each(|member| self.member(ty, &member))?;
                (ty.id, ty.size())
            }
            Kind::Func => {
                self.function(ty)?;
                (ty.id, None)
            }
            Kind::FuncProto => {
                self.prototype(ty)?;
                (ty.id, None)
            }
            Kind::Var => {
                let size = self.sized(ty.word).ok_or_else(|| of(ty, "Invalid type_id"))?;
                (ty.id, Some(size))
            }
            Kind::Datasec => {
                self.section(ty)?;
                (ty.id, None)
            }
            Kind::DeclTag => {
                self.remark(ty)?;
                (ty.id, None)
            }
            _ => (ty.id, ty.size()),
        };
        let tags = match (ty.kind, self.tags(ty.word)) {
            (Kind::TypeTag, Tags::None) => Tags::First,
            (Kind::TypeTag, tags) => tags,
            (kind, Tags::First) if kind.is_modifier() => Tags::Late,
            (kind, tags) if kind.is_modifier() => tags,
            _ => Tags::None,
        };
        self.known[ty.id as usize] = Known { state: State::Done, base, size, tags };
        Ok(())
    }

    /// What a pointer, typedef or qualifier refers to: no variable, section or remark.
    fn target(&self, ty: &Type<'_>) -> Result<u32, Malformed> {
        let target = self.btf.ty(ty.word).map_err(|_| of(ty, "Invalid type_id"))?;
        let fits = !matches!(target.kind, Kind::Var | Kind::Datasec | Kind::DeclTag);
        hold(fits, ty, "Invalid type_id").map(|()| target.id)
    }

    /// The order of tags on the way from a type to its base.
    fn tags(&self, id: u32) -> Tags {
        match self.btf.ty(id) {
            Ok(ty) if ty.kind.is_modifier() => self.known[id as usize].tags,
            _ => Tags::None,
        }
    }

    /// The type behind typedefs and qualifiers.
    fn base(&self, id: u32) -> u32 {
        match self.btf.ty(id) {
            Ok(ty) if ty.kind.is_modifier() => self.known[id as usize].base,
            Ok(ty) => ty.id,
            Err(_) => 0,
        }
    }

    fn based(&self, id: u32) -> Option<Type<'a>> {
        self.btf.ty(self.base(id)).ok()
    }

    fn size(&self, id: u32) -> Option<u32> {
        let base = self.based(id)?;
        let known = self.known.get(base.id as usize)?;
        if known.state == State::Done { known.size } else { base.size() }
    }

    /// The size of what can be an element, a member, a variable or a parameter.
    fn sized(&self, id: u32) -> Option<u32> {
        let kind = self.based(id)?.kind;
        let has = kind.is_composite()
            || kind.is_enum()
            || matches!(kind, Kind::Int | Kind::Ptr | Kind::Array | Kind::Float);
        if has { self.size(id) } else { None }
    }

    /// The size of an array.
    fn array(&self, ty: &Type<'_>) -> Result<u32, Malformed> {
        let [element, index, count] = [0, 4, 8].map(|at| u32_at(ty.tail, at));
        let index = self.based(index).and_then(|index| index.int());
        hold(index.is_some_and(is_regular), ty, "Invalid index")?;
        let size = self.sized(element).ok_or_else(|| of(ty, "Invalid elem"))?;
        let int = self.based(element).and_then(|element| element.int());
        hold(int.is_none_or(is_regular), ty, "Invalid array of int")?;
        size.checked_mul(count).ok_or_else(|| of(ty, "Array size overflows U32_MAX"))
    }

    fn member(&self, ty: &Type<'_>, member: &Member<'_>) -> Checked {
        let size = self.sized(member.ty).ok_or_else(|| of(ty, "Invalid member"))?;
        let base = self.based(member.ty).ok_or_else(|| of(ty, "Invalid member"))?;
        let fits = |first_bit: u32, bits: u32| {
            let end = u64::from(first_bit / 8) + u64::from((first_bit % 8 + bits).div_ceil(8));
            hold(end <= ty.word.into(), ty, "Member exceeds struct_size")
        };
        let aligned = || hold(member.bit_offset.is_multiple_of(8), ty, "Member is not byte aligned");
        let is_field = ty.flag && member.bits != 0;
        match base.int() {
            Some(int) if is_field => {
                hold(is_regular(int), ty, "Invalid member base type")?;
                hold(member.bits <= int.bits, ty, "Invalid member bitfield_size")?;
                hold(member.bit_offset % 8 + member.bits <= 128, ty, "nr_copy_bits exceeds 128")?;
                fits(member.bit_offset, member.bits)
            }
            Some(int) if ty.flag => {
                hold(is_regular(int), ty, "Invalid member base type")?;
                hold(member.bit_offset.is_multiple_of(8), ty, "Invalid member offset")?;
                fits(member.bit_offset, int.bits)
            }
            Some(int) => {
                // Both are below 2^32, the second below 2^8.
                let first = member.bit_offset.saturating_add(int.offset);
                hold(first % 8 + int.bits <= 128, ty, "nr_copy_bits exceeds 128")?;
                fits(first, int.bits)
            }
            None if is_field => {
                let valid = base.kind.is_enum() && member.bits <= ENUM_BITS;
                hold(valid, ty, "Invalid member bitfield_size")?;
                fits(member.bit_offset, member.bits)
            }
            None if ty.flag && base.kind.is_enum() && !member.bit_offset.is_multiple_of(8) => {
                Err(of(ty, "Invalid member offset"))
            }
            None => {
                aligned()?;
                // Every architecture aligns them to that, at least.
                let alignment = size.min(8) * 8;
                let placed = base.kind != Kind::Float || member.bit_offset.is_multiple_of(alignment);
                hold(placed, ty, "Member is not properly aligned")?;
                let end = u64::from(member.bit_offset / 8) + u64::from(size);
                hold(end <= ty.word.into(), ty, "Member exceeds struct_size")
            }
        }
    }

    /// A function's parameters have names.
    fn function(&self, ty: &Type<'_>) -> Checked {
        let prototype = self.btf.ty(ty.word).ok().filter(|target| target.kind == Kind::FuncProto);
        let prototype = prototype.ok_or_else(|| of(ty, "Invalid type_id"))?;
        let named = |at: u32| ty_name(&prototype, at).is_some_and(is_identifier);
        let mut params = prototype.params();
        let nameless = params.position(|param| param.ty != 0 && !named(param.name_at));
        nameless.map_or(Ok(()), |at| Err(of(ty, format!("Invalid arg#{}", at + 1))))
    }

    fn prototype(&mut self, ty: &Type<'_>) -> Checked {
        let used = |types: &mut Self, id: u32, invalid: Malformed| {
            // Nothing else refers to it by value.
            let Ok(there) = types.btf.ty(id) else { return Err(invalid) };
            if goes_on(Walk::Open, there.kind) && types.known[id as usize].state == State::New {
                types.resolve(id)?;
            }
            if types.sized(id).is_some() { Ok(()) } else { Err(invalid) }
        };
        if ty.word != 0 {
            used(self, ty.word, of(ty, "Invalid return type"))?;
        }
        let last = ty.params().len().wrapping_sub(1);
        for (index, param) in ty.params().enumerate() {
            let invalid = || of(ty, format!("Invalid arg#{}", index + 1));
            let name = ty_name(ty, param.name_at).ok_or_else(invalid)?;
            if param.ty == 0 {
                if index != last || !name.is_empty() {
                    return Err(invalid());
                }
                continue;
            }
            if !name.is_empty() && !is_identifier(name) {
                return Err(invalid());
            }
            used(self, param.ty, invalid())?;
        }
        Ok(())
    }

    fn section(&self, ty: &Type<'_>) -> Checked {
        for entry in ty.tail.as_chunks::<12>().0 {
            let [var, size] = [0, 8].map(|at| u32_at(entry, at));
            let var = self.btf.ty(var).map_err(|_| of(ty, "Invalid type_id"))?;
            hold(var.kind == Kind::Var, ty, "Not a VAR kind member")?;
            // Linux takes a pointer for as small as the section says, and clients rely on it.
            let pointer = self.based(var.word).is_some_and(|base| base.kind == Kind::Ptr);
            let fits = self.size(var.id).is_some_and(|least| least <= size);
            hold(pointer || fits, ty, "Invalid size")?;
        }
        Ok(())
    }

    /// A remark is about a declaration, or about one of its members or parameters.
    fn remark(&self, ty: &Type<'_>) -> Checked {
        let about = self.btf.ty(ty.word).map_err(|_| of(ty, "Invalid type_id"))?;
        let parts = match about.kind {
            Kind::Struct | Kind::Union => about.count,
            Kind::Func => self.btf.ty(about.word).map_or(0, |prototype| prototype.count),
            Kind::Var | Kind::Typedef => 0,
            _ => return Err(of(ty, "Invalid type_id")),
        };
        let valid = ty.component().is_none_or(|index| index < parts);
        hold(valid, ty, "Invalid component_idx")
    }
}

/// The reference of that number of a type that is resolved by others.
fn reference(ty: &Type<'_>, number: usize) -> Option<u32> {
    match ty.kind {
        Kind::Array => (number < 2).then(|| u32_at(ty.tail, number * 4)),
        Kind::Struct | Kind::Union => Some(ty.member(number)?.ty),
        Kind::Datasec => ty.tail.as_chunks::<12>().0.get(number).map(|entry| u32_at(entry, 0)),
        Kind::Ptr | Kind::Var | Kind::Func | Kind::DeclTag => (number == 0).then_some(ty.word),
        kind if kind.is_modifier() => (number == 0).then_some(ty.word),
        _ => None,
    }
}

/// Whether a walk goes on at a type.
fn goes_on(walk: Walk, kind: Kind) -> bool {
    kind.is_modifier()
        || match walk {
            Walk::ByPointer => kind == Kind::Ptr,
            Walk::ByValue => kind == Kind::Array || kind.is_composite(),
            Walk::Open => {
                kind.is_composite() || matches!(kind, Kind::Ptr | Kind::Array | Kind::Var | Kind::Func)
            }
        }
}

/// Whether an integer has all bits of 1, 2, 4, 8 or 16 bytes.
fn is_regular(int: Int) -> bool {
    int.offset == 0 && matches!(int.bits, 8 | 16 | 32 | 64 | 128)
}
