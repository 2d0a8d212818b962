//! Maps of sockets and control groups.

use std::sync::Arc;

use super::{Map, status};
use crate::caller::Caller;
use crate::error::MapError;
use crate::leaf_lock::Patience;
use crate::members::{MakeMember, Member, Members, Replaced};
use crate::op_error::{OpError, errno};
use crate::table::Table;
use crate::update::UpdateFlags;

/// Maps of sockets and control groups, for the host.
impl Map {
    /// Sets the element of a key, and returns the old one. Running programs see the new one at once; the old one stays
    /// alive until none can use it.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use skep_abi::{MapDef, MapKind};
    /// use skep_maps::{Map, MapError, Member, Options, UpdateFlags};
    ///
    /// # fn main() -> Result<(), MapError> {
    /// let def = MapDef::new("sockets", MapKind::Sockmap, 4, 8, 8);
    /// let sockets = Map::create(&def, &Options { cpus: 1, limit: 1 << 20 })?;
    /// let connection = Member::new(77, Arc::new("a socket of the host"));
    /// sockets.set_member(&3_u32.to_ne_bytes(), connection, UpdateFlags::NoExist)?;
    /// assert_eq!(sockets.lookup(&3_u32.to_ne_bytes())?, Some(77_u64.to_ne_bytes().to_vec())); // its cookie
    /// assert_eq!(sockets.member(&3_u32.to_ne_bytes())?.unwrap().object().downcast_ref(), Some(&"a socket of the host"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`], [`MapError::OutOfRange`], [`MapError::Exists`] and [`MapError::Missing`] by the flags,
    /// [`MapError::Full`], [`MapError::NoMemory`], [`MapError::Frozen`], [`MapError::Object`] for flags that the kind
    /// does not take, [`MapError::NoReferences`] for other kinds. Nothing is changed then.
    pub fn set_member(
        &self,
        key: &[u8],
        member: Member,
        flags: UpdateFlags,
    ) -> Result<Option<Arc<Member>>, MapError> {
        let members = self.of_members()?;
        self.check_key(key)?;
        let _unfrozen = self.hold_unfrozen()?;
        let mut replaced = None;
        let result = self.with_retries(|caller| {
            replaced = Some(members.set(key, member.clone(), flags, caller, Patience::Endless)?);
            Ok(())
        });
        result.map_err(|error| self.explain(error, key))?;
        Ok(replaced.and_then(|replaced| self.retire(members, replaced)))
    }

    /// The element of a key.
    ///
    /// # Errors
    ///
    /// [`MapError::KeyLength`]; [`MapError::NoReferences`] for other kinds.
    pub fn member(&self, key: &[u8]) -> Result<Option<Arc<Member>>, MapError> {
        let members = self.of_members()?;
        self.check_key(key)?;
        Ok(members.get(key))
    }

    /// Removes all elements of which that is true; none in other kinds. A frozen map loses them too: freezing ends
    /// changes by who updates it, and these have ended by themselves.
    ///
    /// An element that another thread is changing for long stays.
    pub fn remove_members(&self, ended: impl Fn(&Member) -> bool) {
        let Table::Members(members) = &self.table else { return };
        let removed = self.inside(|caller| members.remove_all(ended, caller));
        for replaced in removed {
            drop(self.retire(members, replaced));
        }
    }

    /// All elements with their keys; none for other kinds.
    pub fn members(&self) -> Vec<(Vec<u8>, Arc<Member>)> {
        if let Table::Members(members) = &self.table { members.all() } else { Vec::new() }
    }
}

/// The same, for programs.
impl Map {
    /// Lets programs store sockets in a `sockmap` or `sockhash` by [`update_ptr`](Self::update_ptr), whose value is
    /// then the socket's address. Without effect for other kinds, and after the first call.
    pub fn let_programs_store(&self, make: MakeMember) {
        if let Table::Members(members) = &self.table {
            members.let_programs_store(make);
        }
    }

    /// The element of a key; `None` for other kinds too. It stays as it is until the section ends.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr), and the result is used within the section only.
    pub unsafe fn member_ptr<'a>(&self, key: *const u8, cpu: u32) -> Option<&'a Member> {
        let Table::Members(members) = &self.table else { return None };
        // SAFETY: by the caller's contract.
        unsafe { members.find(key, cpu) }
    }

    /// Sets the element of a key; `flags` are the numbers of [`UpdateFlags`].
    ///
    /// Returns 0, or a negative error number as Linux does: `-EINVAL` (22) for flags that the kind does not take,
    /// `-E2BIG` (7) beyond the end and for a full hash table, `-EEXIST` (17) and `-ENOENT` (2) by the flags, `-ENOMEM`
    /// (12), `-EBUSY` (16) if the program interrupted a change, `-EOPNOTSUPP` (95) for other kinds. It allocates.
    ///
    /// # Safety
    ///
    /// As for [`lookup_ptr`](Self::lookup_ptr).
    pub unsafe fn set_member_ptr(&self, key: *const u8, member: Member, flags: u64, cpu: u32) -> i64 {
        let Table::Members(members) = &self.table else { return -i64::from(errno::EOPNOTSUPP) };
        let Some(flags) = UpdateFlags::from_number(flags) else { return -i64::from(errno::EINVAL) };
        // SAFETY: by the caller's contract.
        let key = unsafe { Key::of(members, key) };
        let set = members.set(key.bytes(), member, flags, Caller::Cpu(cpu), Patience::Bounded);
        status(set.map(|replaced| drop(self.retire(members, replaced))))
    }
}

/// A copy of a program's key.
struct Key {
    words: [[u8; 8]; crate::hash::MAX_STACK_KEY as usize / 8],
    size: usize,
}

impl Key {
    /// # Safety
    ///
    /// `key` is readable for the map's key size.
    unsafe fn of(members: &Members, key: *const u8) -> Self {
        let size = members.key_size();
        let mut words = [0; crate::hash::MAX_STACK_KEY as usize / 8];
        // SAFETY: by the caller's contract; keys of these kinds are no longer than that.
        unsafe { crate::racy::load_words(key, size, &mut words[..size.div_ceil(8)]) };
        Self { words: words.map(u64::to_ne_bytes), size }
    }

    fn bytes(&self) -> &[u8] {
        &self.words.as_flattened()[..self.size]
    }
}

impl Map {
    fn of_members(&self) -> Result<&Members, MapError> {
        match &self.table {
            Table::Members(members) => Ok(members),
            _ => Err(MapError::NoReferences { map: self.name().to_owned(), kind: self.kind() }),
        }
    }

    pub(super) fn remove_member(&self, members: &Members, key: &[u8]) -> Result<(), MapError> {
        let _unfrozen = self.hold_unfrozen()?;
        let removed = self.inside(|caller| members.remove(key, caller, Patience::Endless));
        drop(self.retire(members, removed.map_err(|error| self.explain(error, key))?));
        Ok(())
    }

    /// A program removes an element.
    ///
    /// # Safety
    ///
    /// `key` is readable for the key size; `caller` is the calling thread.
    pub(super) unsafe fn forget_member(
        &self,
        members: &Members,
        key: *const u8,
        caller: Caller,
    ) -> Result<(), OpError> {
        // SAFETY: by the caller's contract.
        let key = unsafe { Key::of(members, key) };
        drop(self.retire(members, members.remove(key.bytes(), caller, Patience::Bounded)?));
        Ok(())
    }

    fn retire(&self, members: &Members, replaced: Replaced) -> Option<Arc<Member>> {
        members.retire(replaced, &self.reuse().domain)
    }
}
