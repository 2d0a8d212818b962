//! Tags of types: those of pointers' targets (`__rcu`, `__user`, `__kptr`), and those of functions, their parameters
//! and members of structures (`bpf_kfunc`, `arg:nonnull`).

use crate::btf::{Btf, MAX_CHAIN};
use crate::error::Error;
use crate::types::{Kind, Type};

/// What a pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer<'a> {
    /// The type pointed to, behind typedefs, qualifiers and tags; 0 for `void`.
    pub to: u32,
    /// The tags on the way there, the outermost first.
    pub tags: Vec<&'a str>,
}

/// A remark on a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclTag<'a> {
    /// What it says.
    pub name: &'a str,
    /// The number of the parameter or member it is about; `None` for the whole.
    pub component: Option<u32>,
}

/// Numbers of tags by what they are about.
pub(crate) struct DeclTags(Vec<(u32, u32)>);

impl Pointer<'_> {
    /// Whether it has that tag.
    pub fn is(&self, tag: &str) -> bool {
        self.tags.contains(&tag)
    }
}

impl Btf {
    /// What the pointer of that number points to; `None` for types that are no pointers. Tags stand between
    /// the pointer and its target, or as the `__user` of a typedef's own, before it.
    ///
    /// # Errors
    ///
    /// [`Error::TypeMissing`], [`Error::Endless`] and [`Error::Damaged`].
    pub fn pointer(&self, id: u32) -> Result<Option<Pointer<'_>>, Error> {
        let pointer = self.resolve(id)?;
        if pointer.kind != Kind::Ptr {
            return Ok(None);
        }
        let mut tags = Vec::new();
        let mut at = pointer.word;
        for _ in 0..MAX_CHAIN {
            let ty = self.ty(at)?;
            if !ty.kind.is_modifier() {
                return Ok(Some(Pointer { to: at, tags }));
            }
            if ty.kind == Kind::TypeTag && !ty.is_attribute() {
                tags.push(ty.name()?);
            }
            at = ty.word;
        }
        Err(Error::Endless { id })
    }

    /// The declaration tags of this type, from the file that defines it; a split file adds none.
    pub fn decl_tags(&self, id: u32) -> impl Iterator<Item = DeclTag<'_>> {
        let owner = self.owner(id);
        let all = &owner.decl_tag_index().0;
        let from = all.partition_point(|&(about, _)| about < id);
        all[from..].iter().take_while(move |&&(about, _)| about == id).filter_map(|&(_, tag)| {
            let tag = owner.ty(tag).ok()?;
            Some(DeclTag { name: tag.name().ok()?, component: tag.component() })
        })
    }

    /// The file that a type is from.
    fn owner(&self, id: u32) -> &Self {
        match self.base() {
            Some(base) if id < self.first() => base.owner(id),
            _ => self,
        }
    }

    fn decl_tag_index(&self) -> &DeclTags {
        self.decl_tags.get_or_init(|| {
            let is_tag = |ty: &Type<'_>| ty.kind == Kind::DeclTag && !ty.is_attribute();
            let mut tags: Vec<_> = self.own_types().filter(is_tag).map(|ty| (ty.word, ty.id)).collect();
            tags.sort_unstable();
            DeclTags(tags)
        })
    }
}
