//! What lies at an offset of a structure: the question that each access through a typed pointer asks.
//!
//! Structures inside structures, unions and arrays are looked through until something is found that the access
//! takes in as a whole or lies within:
//!
//! ```text
//!   struct task_struct
//!   | state | se: struct sched_entity   | comm[16] |      4 bytes at se.run_node.color  ->  a scalar
//!           | load | run_node  | vruntime|                 8 bytes at se.run_node.left   ->  a pointer
//!                  |color|left |                          24 bytes at se.run_node        ->  a structure
//! ```
//!
//! Of a union's members the first that fits is taken. A search ends after [`BUDGET`] members, so that no file
//! can make it long: unions of unions could otherwise be tried in exponentially many ways.

use std::fmt;
use std::ops::Range;

use crate::btf::Btf;
use crate::error::{Error, Fault};
use crate::tags::Pointer;
use crate::types::{Kind, Member, Type};

/// The most members that a search looks at.
const BUDGET: u32 = 1 << 17;
/// The most structures and arrays inside each other.
const MAX_DEPTH: u32 = 32;

/// What an access to a structure finds.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// What is there.
    pub what: What<'a>,
    /// Bytes from its start to that of the access.
    pub inner: u32,
    /// Whether it is in a union, so that its bytes may mean something else.
    pub in_union: bool,
    /// The way there.
    pub path: Vec<Step<'a>>,
}

/// What is at a place of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What<'a> {
    /// A number; the access lies within it.
    Scalar {
        /// Its type: an integer, an enumeration, a floating-point number.
        id: u32,
        /// Its size in bytes.
        size: u32,
    },
    /// A pointer, accessed as a whole.
    Pointer(Pointer<'a>),
    /// A bit field; the access takes it in as a whole.
    BitField {
        /// Its type.
        id: u32,
        /// Bits from the start of the access to its lowest.
        first_bit: u32,
        /// Its width.
        bits: u32,
    },
    /// A structure or union as a whole.
    Struct {
        /// Its type.
        id: u32,
    },
    /// Several elements of an array.
    Array {
        /// The array's type.
        id: u32,
        /// The type of its elements.
        element: u32,
    },
}

/// A step on the way to a place in a structure.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// To a member.
    Member(Member<'a>),
    /// To an element of an array.
    Element(u32),
}

/// The way to a place as C writes it; steps without a name, through anonymous structures, are left out.
struct Path<'s, 'a>(&'s [Step<'a>]);

impl Found<'_> {
    /// The way there as C writes it: `se.run_node.left`.
    pub fn place(&self) -> String {
        Path(&self.path).to_string()
    }
}

impl Btf {
    /// What an access of `size` bytes at `offset` of the structure or union finds.
    ///
    /// # Errors
    ///
    /// [`Error::Walk`] where there is nothing that could be accessed so; other errors where types are damaged.
    pub fn walk(&self, id: u32, offset: u32, size: u32) -> Result<Found<'_>, Error> {
        let root = self.resolve(id)?;
        if !root.kind.is_composite() {
            return Err(Error::WrongKind { id, expected: "structure or union" });
        }
        let mut walk = Walk { btf: self, path: Vec::new(), in_union: false, budget: BUDGET };
        let place = Place { offset, size: size.max(1) };
        match walk.composite(&root, place, 0) {
            Ok((what, inner)) => Ok(Found { what, inner, in_union: walk.in_union, path: walk.path }),
            Err(Stop::Broken(error)) => Err(error),
            Err(Stop::Fault { fault, path }) => {
                let root = self.type_name(root.id)?;
                let path = if path.is_empty() { root.clone() } else { Path(&path).to_string() };
                Err(Error::Walk { root, path, offset, size, fault })
            }
        }
    }

    /// The bytes of a member of a structure or union, given by the names that lead to it: `se.run_node`. `None` if
    /// there is no such member, or it is a bit field.
    ///
    /// # Errors
    ///
    /// Where types are damaged.
    pub fn member_bytes(&self, id: u32, path: &str) -> Result<Option<Range<u32>>, Error> {
        let (mut ty, mut start, mut budget) = (id, 0u32, BUDGET);
        for name in path.split('.') {
            let Some((member, offset)) = self.member_named(ty, name, 0, &mut budget)? else {
                return Ok(None);
            };
            let Some(at) = start.checked_add(offset) else { return Ok(None) };
            (ty, start) = (member, at);
        }
        let size = self.size(ty)?;
        Ok(start.checked_add(size).map(|end| start..end))
    }

    /// The type and offset of a member with that name, also of one inside of members without a name.
    fn member_named(
        &self,
        id: u32,
        name: &str,
        depth: u32,
        budget: &mut u32,
    ) -> Result<Option<(u32, u32)>, Error> {
        let ty = self.resolve(id)?;
        if !ty.kind.is_composite() || depth == MAX_DEPTH {
            return Ok(None);
        }
        for member in ty.members() {
            // Damaged types may lead round in a circle.
            let Some(left) = budget.checked_sub(1) else { return Ok(None) };
            *budget = left;
            let offset = member.bit_offset / 8;
            let found = match member.name()? {
                "" => self.member_named(member.ty, name, depth + 1, budget)?,
                own if own == name && member.bits == 0 => Some((member.ty, 0)),
                _ => None,
            };
            if let Some((ty, inner)) = found {
                return Ok(offset.checked_add(inner).map(|offset| (ty, offset)));
            }
        }
        Ok(None)
    }

    /// Whether a structure of that type starts at `offset` of another: as a member, a member's first member and
    /// so on, or as the whole.
    ///
    /// # Errors
    ///
    /// Where types are damaged.
    pub fn contains(&self, id: u32, offset: u32, wanted: u32) -> Result<bool, Error> {
        let wanted = self.resolve(wanted)?.id;
        let (mut at, mut offset) = (id, offset);
        for _ in 0..MAX_DEPTH {
            let ty = self.resolve(at)?;
            if offset == 0 && ty.id == wanted {
                return Ok(true);
            }
            if let Some(array) = ty.array() {
                let size = self.size(array.element)?;
                let Some(inner) = offset.checked_rem(size) else { return Ok(false) };
                (at, offset) = (array.element, inner);
                continue;
            }
            if !ty.kind.is_composite() {
                return Ok(false);
            }
            let mut inside = None;
            for member in ty.members().filter(|member| member.bits == 0) {
                let start = member.bit_offset / 8;
                // A union could have it in any of its members: the first that is large enough is looked into.
                if start <= offset && offset - start < self.size(member.ty).unwrap_or(0) {
                    inside = Some((member.ty, offset - start));
                    break;
                }
            }
            let Some(inside) = inside else { return Ok(false) };
            (at, offset) = inside;
        }
        Ok(false)
    }
}

/// An access as seen from the structure that is looked into.
#[derive(Clone, Copy)]
struct Place {
    offset: u32,
    size: u32,
}

impl Place {
    fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.size)
    }

    /// The same seen from something inside that starts there.
    fn within(self, start: u32) -> Self {
        Self { offset: self.offset - start, ..self }
    }
}

struct Walk<'a> {
    btf: &'a Btf,
    path: Vec<Step<'a>>,
    in_union: bool,
    budget: u32,
}

/// Why a way leads nowhere.
enum Stop<'a> {
    /// Another may be tried.
    Fault { fault: Fault, path: Vec<Step<'a>> },
    /// The types themselves are wrong.
    Broken(Error),
}

impl From<Error> for Stop<'_> {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

type Outcome<'a> = Result<(What<'a>, u32), Stop<'a>>;

impl<'a> Walk<'a> {
    /// Looks into a structure or union.
    fn composite(&mut self, ty: &Type<'a>, place: Place, depth: u32) -> Outcome<'a> {
        let size = ty.size().unwrap_or(0);
        // Arrays without a length reach beyond the end of the structure that they are the last member of.
        let members = ty.members();
        let last = members.len().saturating_sub(1);
        if depth >= MAX_DEPTH {
            return Err(self.stop(Fault::TooLarge));
        }
        let is_union = ty.kind == Kind::Union;
        let mut failed = None;
        let mut members = members.enumerate().peekable();
        while let Some((index, member)) = members.next() {
            self.budget = self.budget.checked_sub(1).ok_or_else(|| self.stop(Fault::TooLarge))?;
            // Members of structures ascend: one is passed over unread if the next starts no later than the
            // access does.
            let next = members.peek().map(|(_, next)| next.bit_offset);
            let passed = next.is_some_and(|next| {
                next > member.bit_offset && u64::from(next) <= u64::from(place.offset) * 8
            });
            if !is_union && passed {
                continue;
            }
            if u64::from(member.bit_offset) >= place.end() * 8 {
                if is_union { continue } else { break }
            }
            let depth_before = self.path.len();
            let in_union = self.in_union;
            self.path.push(Step::Member(member));
            self.in_union |= is_union;
            match self.member(&member, index == last && !is_union, place, depth) {
                Ok(None) => {}
                Ok(Some(found)) => return Ok(found),
                Err(Stop::Fault { fault: Fault::TooLarge, path }) => {
                    return Err(Stop::Fault { fault: Fault::TooLarge, path });
                }
                Err(stop @ Stop::Broken(_)) => return Err(stop),
                Err(stop) if is_union => failed = failed.or(Some(stop)),
                Err(stop) => return Err(stop),
            }
            self.path.truncate(depth_before);
            self.in_union = in_union;
        }
        Err(match failed {
            Some(stop) => stop,
            None if place.end() > size.into() => self.stop(Fault::Beyond(size)),
            None => self.stop(Fault::Padding),
        })
    }

    /// Looks at a member; `None` if the access does not touch it.
    fn member(
        &mut self,
        member: &Member<'a>,
        last: bool,
        place: Place,
        depth: u32,
    ) -> Result<Option<(What<'a>, u32)>, Stop<'a>> {
        if member.bits > 0 {
            let (first, access) = (u64::from(member.bit_offset), u64::from(place.offset) * 8);
            let end = first + u64::from(member.bits);
            return if end <= access {
                Ok(None)
            } else if first >= access && end <= place.end() * 8 {
                // Below the size of the access in bits.
                let first_bit = (first - access) as u32;
                let id = self.btf.resolve(member.ty)?.id;
                Ok(Some((What::BitField { id, first_bit, bits: member.bits }, 0)))
            } else {
                Err(self.stop(Fault::PartOfBitField))
            };
        }
        let start = member.bit_offset / 8;
        let ty = self.btf.resolve(member.ty)?;
        let open_end = last && ty.array().is_some_and(|array| array.count == 0);
        let size = if open_end { u32::MAX } else { self.btf.size(ty.id)? };
        if u64::from(start) + u64::from(size) <= place.offset.into() || size == 0 {
            return Ok(None);
        }
        if place.offset < start {
            return Err(self.stop(Fault::Crosses));
        }
        self.thing(&ty, size, place.within(start), depth).map(Some)
    }

    /// Looks at a member's or element's type, with the access seen from its start.
    fn thing(&mut self, ty: &Type<'a>, size: u32, place: Place, depth: u32) -> Outcome<'a> {
        let whole = place.offset == 0 && place.size == size;
        match ty.kind {
            Kind::Ptr => match self.btf.pointer(ty.id)? {
                Some(pointer) if whole => Ok((What::Pointer(pointer), 0)),
                _ if place.end() > size.into() => Err(self.stop(Fault::Crosses)),
                _ => Err(self.stop(Fault::PartOfPointer)),
            },
            // One that is as large as its only member is taken for the structure only where no single number
            // or pointer is asked for.
            Kind::Struct | Kind::Union if whole && size > 8 => Ok((What::Struct { id: ty.id }, 0)),
            Kind::Struct | Kind::Union => self.composite(ty, place, depth + 1),
            Kind::Array => self.array(ty, size, place, depth),
            _ if place.end() > size.into() => Err(self.stop(Fault::Crosses)),
            _ => Ok((What::Scalar { id: ty.id, size }, place.offset)),
        }
    }

    fn array(&mut self, ty: &Type<'a>, size: u32, place: Place, depth: u32) -> Outcome<'a> {
        let Some(array) = ty.array() else { return Err(self.stop(Fault::Padding)) };
        if place.end() > size.into() {
            return Err(self.stop(Fault::Crosses));
        }
        let element = self.btf.resolve(array.element)?;
        let step = self.btf.size(element.id)?;
        let Some(index) = place.offset.checked_div(step) else { return Err(self.stop(Fault::Padding)) };
        let within = place.within(index * step);
        if depth >= MAX_DEPTH {
            return Err(self.stop(Fault::TooLarge));
        }
        if within.end() > step.into() {
            return match element.kind {
                // Numbers in a row may be read together; pointers may not, for they would be no numbers.
                Kind::Int | Kind::Enum | Kind::Enum64 | Kind::Float => {
                    Ok((What::Array { id: ty.id, element: element.id }, place.offset))
                }
                _ if within.offset == 0 && place.size.is_multiple_of(step) => {
                    Ok((What::Array { id: ty.id, element: element.id }, place.offset))
                }
                _ => Err(self.stop(Fault::Crosses)),
            };
        }
        self.path.push(Step::Element(index));
        self.thing(&element, step, within, depth + 1)
    }

    fn stop(&self, fault: Fault) -> Stop<'a> {
        Stop::Fault { fault, path: self.path.clone() }
    }
}

impl fmt::Display for Path<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for step in self.0 {
            match step {
                Step::Element(index) => write!(f, "[{index}]")?,
                Step::Member(member) if member.is_anonymous() => continue,
                Step::Member(member) => {
                    let dot = if first { "" } else { "." };
                    write!(f, "{dot}{}", member.name().unwrap_or("?"))?;
                }
            }
            first = false;
        }
        Ok(())
    }
}
