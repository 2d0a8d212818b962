//! The way into a type that a relocation is about, in the object and in the target.

use skep_btf::{Btf, Member, Type, essential_name};

use super::{Budget, Fault, Question, compat};

/// The most steps of a path.
const MAX_STEPS: usize = 64;
/// The most anonymous structures inside each other that a member is searched in.
const MAX_DEPTH: u32 = 32;

/// Where a path leads. The same for the object's types and the target's.
pub(super) struct Path<'a> {
    /// The type it starts at.
    pub(super) root: u32,
    steps: Vec<Step<'a>>,
    /// Bits from the start.
    pub(super) bits: u64,
    /// The type it ends at.
    pub(super) ty: u32,
    /// The member that it ends at; `None` where it ends at an element, or where it started.
    pub(super) member: Option<Member<'a>>,
    /// The value of an enumeration that it is about.
    pub(super) value: Option<u64>,
}

/// A step that is taken in the target as well. Those into anonymous members are not: there they may be missing.
#[derive(Clone, Copy)]
enum Step<'a> {
    Member { name: &'a str, ty: u32 },
    Element(u32),
    Value(&'a str),
}

impl<'a> Path<'a> {
    fn start(root: u32) -> Self {
        Self { root, steps: Vec::new(), bits: 0, ty: root, member: None, value: None }
    }

    /// The names of its members.
    pub(super) fn members(&self) -> impl Iterator<Item = &'a str> {
        self.steps.iter().filter_map(|step| match *step {
            Step::Member { name, .. } | Step::Value(name) => Some(name),
            Step::Element(_) => None,
        })
    }

    /// Reads the path of a relocation.
    pub(super) fn local(btf: &'a Btf, root: u32, question: Question, text: &str) -> Result<Self, Fault> {
        let mut path = Self::start(root);
        if question.is_about_types() {
            return match text {
                "0" => Ok(path),
                _ => Err("has a path, but is about a type".into()),
            };
        }
        let malformed = "has a path that leads nowhere";
        let mut numbers = Vec::new();
        for number in text.split(':') {
            if numbers.len() == MAX_STEPS {
                return Err(malformed.into());
            }
            numbers.push(number.parse::<u32>().map_err(|_| malformed)?);
        }
        let Some((&first, rest)) = numbers.split_first() else { return Err(malformed.into()) };
        if question.is_about_values() {
            let ty = btf.resolve(root)?;
            let value = ty.enumerators().nth(first as usize).filter(|_| rest.is_empty()).ok_or(malformed)?;
            path.steps.push(Step::Value(essential_name(value.name()?)));
            path.value = Some(value.value);
            return Ok(path);
        }
        path.enter(btf, first, root)?;
        path.steps.push(Step::Element(first));
        for &number in rest {
            let ty = btf.resolve(path.ty)?;
            if let Some(array) = ty.array() {
                if number >= array.count && array.count > 0 {
                    return Err(malformed.into());
                }
                path.enter(btf, number, array.element)?;
                path.steps.push(Step::Element(number));
            } else {
                let member = ty.member(number as usize).ok_or(malformed)?;
                path.follow(member, 0)?;
                if !member.is_anonymous() {
                    path.steps.push(Step::Member { name: member.name()?, ty: member.ty });
                }
            }
        }
        Ok(path)
    }

    /// Walks the same way in the target from the type `root` there; `None` where there is no such way.
    pub(super) fn find<'t>(
        &self,
        local: &Btf,
        target: &'t Btf,
        root: u32,
        question: Question,
        budget: &mut Budget,
    ) -> Result<Option<Path<'t>>, Fault> {
        let mut path = Path::start(root);
        if question == Question::TypeMatches {
            return Ok(compat::matches((local, self.root), (target, root), budget)?.then_some(path));
        }
        if question.is_about_types() {
            return Ok(compat::types((local, self.root), (target, root), budget)?.then_some(path));
        }
        for (index, step) in self.steps.iter().enumerate() {
            match *step {
                Step::Value(name) => {
                    let ty = target.resolve(root)?;
                    for value in ty.enumerators() {
                        budget.spend(1)?;
                        if essential_name(value.name()?) == name {
                            path.value = Some(value.value);
                            break;
                        }
                    }
                    if path.value.is_none() {
                        return Ok(None);
                    }
                }
                Step::Element(number) if index == 0 => path.enter(target, number, root)?,
                Step::Element(number) => {
                    let Some(array) = target.resolve(path.ty)?.array() else { return Ok(None) };
                    if number >= array.count && array.count > 0 {
                        return Ok(None);
                    }
                    path.enter(target, number, array.element)?;
                }
                Step::Member { name, ty } => {
                    let here = target.resolve(path.ty)?;
                    let Some((member, before)) = member(target, here, name, 0, budget)? else {
                        return Ok(None);
                    };
                    if !compat::fields((local, ty), (target, member.ty), budget)? {
                        return Ok(None);
                    }
                    path.follow(member, before)?;
                }
            }
        }
        Ok(Some(path))
    }

    /// Steps to the element of that number.
    fn enter(&mut self, btf: &Btf, number: u32, element: u32) -> Result<(), Fault> {
        // The first element starts at 0, so the type's size does not matter: it may have none.
        if number > 0 {
            let step = u64::from(btf.size(element)?) * 8;
            // 32 bits times 35 and a sum of few such.
            let distance = u64::from(number).checked_mul(step);
            self.add(distance)?;
        }
        self.ty = element;
        self.member = None;
        Ok(())
    }

    /// Steps to a member; `before` is the distance from the structure to the anonymous one that it is in.
    fn follow(&mut self, member: Member<'a>, before: u64) -> Result<(), Fault> {
        self.add(before.checked_add(member.bit_offset.into()))?;
        self.ty = member.ty;
        self.member = Some(member);
        Ok(())
    }

    fn add(&mut self, bits: Option<u64>) -> Result<(), Fault> {
        let sum = bits.and_then(|bits| self.bits.checked_add(bits));
        self.bits = sum.ok_or("leads beyond all memory")?;
        Ok(())
    }
}

/// The member of that name, also inside anonymous members, with the bits before the structure it is in.
fn member<'a>(
    btf: &'a Btf,
    ty: Type<'a>,
    name: &str,
    depth: u32,
    budget: &mut Budget,
) -> Result<Option<(Member<'a>, u64)>, Fault> {
    for found in ty.members() {
        budget.spend(1)?;
        if !found.is_anonymous() {
            if found.name()? == name {
                return Ok(Some((found, 0)));
            }
            continue;
        }
        if depth < MAX_DEPTH
            && let Some((inner, before)) = member(btf, btf.resolve(found.ty)?, name, depth + 1, budget)?
        {
            return Ok(Some((inner, before + u64::from(found.bit_offset))));
        }
    }
    Ok(None)
}
