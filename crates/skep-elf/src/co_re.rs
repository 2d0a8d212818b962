//! CO-RE, "compile once, run everywhere": relocations of instructions whose immediates depend on the layout of the
//! target's structures.
//!
//! A record names an instruction, a type of the object, a path into it (`0:3:1`: the fourth member's second
//! element), and a question:
//!
//! ```text
//!   object's types                         target's types, found by name without flavour
//!   struct task_struct___mine  --match-->  struct task_struct      (0, 1 or several that agree)
//!         | path 0:2                             | the members of the same names
//!   offset 24, 4 bytes                     offset 1256, 8 bytes
//!         '----------- the number in the instruction becomes -------------^
//! ```
//!
//! If nothing matches, a question whether something exists gets the answer no. Any other question turns its instruction
//! into one that must not be reached ([`skep_abi::UNRELOCATED`]). So a program may first ask whether a field exists and
//! then use it: the branch that is not taken costs nothing.
//!
//! Every look at a type is charged to one [`Budget`] for the whole program, so no file can make the search long.

mod compat;
mod patch;
mod path;
mod value;

use std::collections::HashMap;

use skep_abi::UNRELOCATED;
use skep_btf::{Btf, Type};
use skep_isa::{CallTarget, Insn};

use crate::error::Error;
use path::Path;
use value::{Answer, answer};

/// The most looks at types for one program. Real programs need thousands.
const BUDGET: u32 = 1 << 23;

/// The most types of one name that are compared.
const MAX_CANDIDATES: usize = 64;

/// The looks at types that are left.
pub(crate) struct Budget(u32);

/// Why a relocation cannot be applied.
pub(crate) enum Fault {
    /// The record, or the type that it finds, makes no sense.
    Reason(&'static str),
    /// The types are damaged.
    Types(skep_btf::Error),
}

/// A record of a relocation: words of `struct bpf_core_relo`.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub(crate) ty: u32,
    pub(crate) path: u32,
    pub(crate) question: u32,
}

macro_rules! questions {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// What is asked, with the numbers of `enum bpf_core_relo_kind`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Question {
            $($variant,)*
        }

        impl Question {
            fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

questions! {
    FieldOffset = 0, "field offset";
    FieldSize = 1, "field size";
    FieldExists = 2, "field existence";
    FieldSigned = 3, "field signedness";
    LeftShift = 4, "bit-field shift";
    RightShift = 5, "bit-field shift";
    LocalId = 6, "type id";
    TargetId = 7, "type id";
    TypeExists = 8, "type existence";
    TypeSize = 9, "type size";
    ValueExists = 10, "enumerator existence";
    Value = 11, "enumerator value";
    TypeMatches = 12, "type match";
}

impl Question {
    /// Whether the answer is 0 if nothing is found.
    fn may_find_nothing(self) -> bool {
        use Question as Q;
        let asks_whether = matches!(self, Q::FieldExists | Q::TypeExists | Q::ValueExists | Q::TypeMatches);
        asks_whether || matches!(self, Q::TypeSize | Q::TargetId)
    }

    fn is_about_types(self) -> bool {
        use Question as Q;
        matches!(self, Q::LocalId | Q::TargetId | Q::TypeExists | Q::TypeSize | Q::TypeMatches)
    }

    fn is_about_values(self) -> bool {
        matches!(self, Self::ValueExists | Self::Value)
    }
}

/// Applies the relocations of a program, one after the other.
pub(crate) struct CoRe<'a> {
    local: &'a Btf,
    target: &'a Btf,
    budget: Budget,
    /// By type of the object: the types of the target that may match it.
    candidates: HashMap<u32, Vec<u32>>,
}

impl<'a> CoRe<'a> {
    pub(crate) fn new(local: &'a Btf, target: &'a Btf) -> Self {
        Self { local, target, budget: Budget(BUDGET), candidates: HashMap::new() }
    }

    /// Applies a relocation to the instruction at `slot`. Returns what the target lacks, if that is why the instruction
    /// must not be reached.
    pub(crate) fn apply(
        &mut self,
        record: Record,
        insns: &mut [Insn],
        slot: usize,
    ) -> Result<Option<String>, Fault> {
        let question = Question::from_number(record.question).ok_or("is of an unknown kind")?;
        let answer = self.resolve(record, question)?;
        let Some(insn) = insns.get_mut(slot) else { return Err("is about no instruction".into()) };
        let is_wide = matches!(insn, Insn::LoadImm64 { .. });
        let (reachable, missing) = match answer {
            Some(answer) => (patch::patch(insn, &answer)?, None),
            None => (false, Some(self.name(record, question)?)),
        };
        if !reachable {
            let wall = Insn::Call { target: CallTarget::Helper(UNRELOCATED) };
            *insn = wall;
            if is_wide && let Some(tail) = insns.get_mut(slot + 1) {
                *tail = wall;
            }
        }
        Ok(missing)
    }

    /// What a relocation is about, in words of C: `struct task_struct.comm`.
    fn name(&self, record: Record, question: Question) -> Result<String, Fault> {
        let path = Path::local(self.local, record.ty, question, self.local.string(record.path)?)?;
        let members = path.members().map(|name| format!(".{name}"));
        Ok(self.local.type_name(record.ty)? + &members.collect::<String>())
    }

    /// The target's answer; `None` if it has no such thing.
    fn resolve(&mut self, record: Record, question: Question) -> Result<Option<Answer>, Fault> {
        self.local.ty(record.ty)?;
        let text = self.local.string(record.path)?;
        let local = Path::local(self.local, record.ty, question, text)?;
        if question == Question::LocalId {
            return Ok(Some(Answer::number(record.ty.into())));
        }
        let target = self.target;
        let mut found: Option<Answer> = None;
        for index in 0.. {
            let Some(candidate) = self.candidate(record.ty, index)? else { break };
            let Some(there) = local.find(self.local, target, candidate, question, &mut self.budget)? else {
                continue;
            };
            let answer = answer(self.local, &local, target, &there, question)?;
            match &found {
                Some(found) if found.is_other_than(&answer) => {
                    return Err("finds several types of that name, which disagree".into());
                }
                Some(_) => {}
                None => found = Some(answer),
            }
        }
        Ok(found.or_else(|| question.may_find_nothing().then(|| Answer::number(0))))
    }

    /// The target's type number `index` among those that may be the object's `ty`.
    fn candidate(&mut self, ty: u32, index: usize) -> Result<Option<u32>, Fault> {
        if !self.candidates.contains_key(&ty) {
            let local = self.local.ty(ty)?;
            let name = local.name()?;
            if name.is_empty() {
                return Err("is about a type without a name".into());
            }
            let mut found = Vec::new();
            for candidate in self.target.flavours(name) {
                self.budget.spend(1)?;
                if may_be(&local, &candidate) {
                    if found.len() == MAX_CANDIDATES {
                        return Err("finds too many types of that name".into());
                    }
                    found.push(candidate.id);
                }
            }
            self.candidates.insert(ty, found);
        }
        Ok(self.candidates.get(&ty).and_then(|found| found.get(index)).copied())
    }
}

/// The name of the question with this number, for errors.
pub(crate) fn question_name(number: u32) -> &'static str {
    Question::from_number(number).map_or("unknown property", Question::name)
}

/// Whether the question with this number is where a member is, how large, or what an enumerator's number is: not
/// whether
/// something exists.
pub(crate) fn is_about_a_place(number: u32) -> bool {
    use Question as Q;
    matches!(
        Question::from_number(number),
        Some(Q::FieldOffset | Q::FieldSize | Q::FieldSigned | Q::LeftShift | Q::RightShift | Q::Value)
    )
}

/// Whether the answer to the question with this number does not depend on the target.
pub(crate) fn is_about_own_types(number: u32) -> bool {
    Question::from_number(number) == Some(Question::LocalId)
}

/// Whether a kernel's function or variable has the type that the object declares.
pub(crate) fn is_compatible(local: (&Btf, u32), target: (&Btf, u32)) -> Result<bool, Fault> {
    compat::declarations(local, target, &mut Budget(BUDGET))
}

fn may_be(local: &Type<'_>, target: &Type<'_>) -> bool {
    local.kind == target.kind || local.kind.is_enum() && target.kind.is_enum()
}

impl Budget {
    fn spend(&mut self, looks: u32) -> Result<(), Fault> {
        self.0 = self.0.checked_sub(looks).ok_or("takes too many looks at types")?;
        Ok(())
    }
}

impl From<&'static str> for Fault {
    fn from(reason: &'static str) -> Self {
        Self::Reason(reason)
    }
}

impl From<skep_btf::Error> for Fault {
    fn from(error: skep_btf::Error) -> Self {
        Self::Types(error)
    }
}

impl Fault {
    /// The error that the caller sees; `with` makes it from a reason.
    pub(crate) fn explain(self, with: impl FnOnce(&'static str) -> Error) -> Error {
        match self {
            Self::Reason(reason) => with(reason),
            Self::Types(error) => error.into(),
        }
    }
}
