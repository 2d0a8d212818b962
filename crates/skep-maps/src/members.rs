//! Maps whose elements stand for objects of the host: sockets, control groups.
//!
//! ```text
//!   host     --Mutex--> owned:  key --> Arc<Member>     keeps members alive
//!   program  ---------> table:  key --> address of the same Member, 0 for none
//! ```
//!
//! **Invariant.** Each address in the table is that of a member in `owned` under the same key, or of one that was
//! removed and waits for a grace period of both flavours. So what a program finds stays the same member until its
//! section ends.
//!
//! **Protocol.** All changes are made under the lock of `owned`: first the table, which may fail, then `owned`. What
//! was replaced is passed to the domain, after the lock. Readers take no lock.
//!
//! Where the kinds differ is in [`Rules`].

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use skep_abi::{MapDef, MapKind};
use skep_mem::CacheStats;
use skep_rcu::{Domain, Grace};

use crate::caller::Caller;
use crate::cursor::{Batch, Cursor};
use crate::leaf_lock::Patience;
use crate::op_error::{OpError, errno};
use crate::references::References;
use crate::update::UpdateFlags;
use crate::values::Values;
use crate::version::back_off;

/// Something of the host's that an element keeps alive: a socket, a control group.
pub type Object = Arc<dyn Any + Send + Sync>;

/// An element of a map of sockets or control groups.
#[derive(Clone)]
pub struct Member {
    id: u64,
    object: Object,
    /// What a look-up by a program gives; 0 for nothing.
    address: u64,
}

impl Member {
    /// An object with its number: the cookie of a socket, which hosts read, or the id of a control group.
    pub fn new(id: u64, object: Object) -> Self {
        Self { id, object, address: 0 }
    }

    /// The same element, of which a look-up in a `sockmap` or `sockhash` gives that address.
    ///
    /// # Safety
    ///
    /// At the address is a `struct bpf_sock` as programs see it, as long as the object lives, and it is one that the
    /// helpers of all runtimes with this map take for a socket. In skep only `skep::socket_member` makes such members.
    #[must_use]
    pub unsafe fn at(self, address: u64) -> Self {
        Self { address, ..self }
    }

    /// The socket's cookie, or the control group's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The object.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Makes an element of the address of a socket that a program stores, or says why not by a positive error number.
///
/// # Safety
///
/// The address is what the verifier takes for a socket, in a run of the runtime that chose this function.
pub type MakeMember = unsafe fn(u64) -> Result<Member, i32>;

/// What distinguishes the kinds.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Whether it is a hash table.
    pub(crate) keyed: bool,
    /// Whether updates accept `BPF_NOEXIST` and `BPF_EXIST`.
    conditions: bool,
    /// What elements are, in the plural.
    pub(crate) what: &'static str,
    /// Whether hosts read elements: cookies, which need values of 8 bytes.
    read: bool,
    /// Deleting a key of an array that is beyond its end.
    beyond: OpError,
    /// Deleting an element that is not there.
    absent: OpError,
    /// Whether programs look elements up.
    seen: bool,
}

/// The rules of a kind; `None` for kinds of other tables.
pub(crate) fn rules(kind: MapKind) -> Option<&'static Rules> {
    const BEYOND: OpError = OpError::BadObject { why: "it is beyond the end", errno: errno::EINVAL };
    const EMPTY: OpError = OpError::BadObject { why: "there is none", errno: errno::EINVAL };
    const SOCKETS: Rules = Rules {
        keyed: false,
        conditions: true,
        what: "sockets",
        read: true,
        beyond: BEYOND,
        absent: EMPTY,
        seen: true,
    };
    const HASHED: Rules = Rules { keyed: true, absent: OpError::Missing, ..SOCKETS };
    const REUSED: Rules =
        Rules { beyond: OpError::OutOfRange, absent: OpError::Missing, seen: false, ..SOCKETS };
    const GROUPS: Rules = Rules { conditions: false, what: "control groups", read: false, ..REUSED };
    Some(match kind {
        MapKind::Sockmap => &SOCKETS,
        MapKind::Sockhash => &HASHED,
        MapKind::ReuseportSockarray => &REUSED,
        MapKind::CgroupArray => &GROUPS,
        _ => return None,
    })
}

/// A map of members.
pub(crate) struct Members {
    table: References,
    owned: Mutex<Owned>,
    maker: OnceLock<MakeMember>,
    rules: &'static Rules,
    key_size: usize,
}

type Owned = BTreeMap<Box<[u8]>, Arc<Member>>;

/// What was replaced: to be [retired](Members::retire) after the lock.
#[must_use]
pub(crate) struct Replaced(Option<Arc<Member>>);

impl Members {
    pub(crate) fn new(def: &MapDef, rules: &'static Rules, table: References) -> Self {
        Self {
            table,
            owned: Mutex::default(),
            maker: OnceLock::new(),
            rules,
            key_size: def.key_size as usize,
        }
    }

    pub(crate) fn rules(&self) -> &'static Rules {
        self.rules
    }

    /// How programs store elements; `None` if they cannot.
    pub(crate) fn maker(&self) -> Option<MakeMember> {
        self.maker.get().copied()
    }

    /// Lets programs store elements. The first function stays.
    pub(crate) fn let_programs_store(&self, make: MakeMember) {
        // Only maps that programs look elements up in take them from programs.
        if self.rules.seen {
            let _ = self.maker.set(make);
        }
    }

    fn lock(&self, patience: Patience) -> Result<MutexGuard<'_, Owned>, OpError> {
        const TURNS: u32 = 400;
        if patience == Patience::Endless {
            return Ok(self.owned.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // A program may have interrupted a change by its own thread.
        for turn in 0..TURNS {
            match self.owned.try_lock() {
                Ok(owned) => return Ok(owned),
                Err(TryLockError::Poisoned(error)) => return Ok(error.into_inner()),
                Err(TryLockError::WouldBlock) => back_off(turn),
            }
        }
        Err(OpError::Busy)
    }

    /// Sets the element of a key.
    pub(crate) fn set(
        &self,
        key: &[u8],
        member: Member,
        flags: UpdateFlags,
        caller: Caller,
        patience: Patience,
    ) -> Result<Replaced, OpError> {
        if flags.is_locked() || (!self.rules.conditions && flags != UpdateFlags::Any) {
            let why = "elements of this kind are set with BPF_ANY";
            return Err(OpError::BadObject { why, errno: errno::EINVAL });
        }
        if self.index(key).is_some_and(|index| index >= self.table.len()) {
            return Err(OpError::OutOfRange);
        }
        let mut owned = self.lock(patience)?;
        match (flags, owned.contains_key(key)) {
            (UpdateFlags::NoExist, true) => return Err(OpError::Exists),
            (UpdateFlags::Exist, false) => return Err(OpError::Missing),
            _ => {}
        }
        let member = Arc::new(member);
        let address = Arc::as_ptr(&member).expose_provenance() as u64;
        // SAFETY: keys have the map's size; `owned` keeps the member alive, and after it the domain.
        unsafe { self.table.put(key.as_ptr(), address, caller)? };
        Ok(Replaced(owned.insert(key.into(), member)))
    }

    /// Removes the element of a key.
    pub(crate) fn remove(&self, key: &[u8], caller: Caller, patience: Patience) -> Result<Replaced, OpError> {
        if self.index(key).is_some_and(|index| index >= self.table.len()) {
            return Err(self.rules.beyond);
        }
        let mut owned = self.lock(patience)?;
        if !owned.contains_key(key) {
            return Err(self.rules.absent);
        }
        // SAFETY: keys have the map's size; 0 stands for none.
        unsafe { self.table.put(key.as_ptr(), 0, caller)? };
        Ok(Replaced(owned.remove(key)))
    }

    /// Removes all elements of which that is true.
    pub(crate) fn remove_all(&self, ended: impl Fn(&Member) -> bool, caller: Caller) -> Vec<Replaced> {
        let Ok(mut owned) = self.lock(Patience::Endless) else { return Vec::new() };
        let keys: Vec<_> =
            owned.iter().filter(|(_, member)| ended(member)).map(|(key, _)| key.clone()).collect();
        let mut removed = Vec::new();
        for key in keys {
            // SAFETY: keys have the map's size; 0 stands for none.
            if unsafe { self.table.put(key.as_ptr(), 0, caller) }.is_ok() {
                removed.push(Replaced(owned.remove(&key)));
            }
        }
        removed
    }

    /// Drops what was replaced when no program can use it any more.
    pub(crate) fn retire(&self, replaced: Replaced, domain: &Domain) -> Option<Arc<Member>> {
        let member = replaced.0?;
        let held = Arc::clone(&member);
        domain.call(Grace::Both, move || drop(held));
        Some(member)
    }

    /// The element of a key, for hosts.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Member>> {
        self.lock(Patience::Endless).ok()?.get(key).cloned()
    }

    /// All elements, for hosts.
    pub(crate) fn all(&self) -> Vec<(Vec<u8>, Arc<Member>)> {
        let Ok(owned) = self.lock(Patience::Endless) else { return Vec::new() };
        owned.iter().map(|(key, member)| (key.to_vec(), Arc::clone(member))).collect()
    }

    /// The cookie of a key's socket, if the kind lets hosts read it.
    pub(crate) fn read(&self, key: &[u8]) -> Result<Option<u64>, OpError> {
        let refused = |why, errno| Err(OpError::BadObject { why, errno });
        match self.values().host_size() {
            _ if !self.rules.read => refused("elements of this kind cannot be read", errno::ENOTSUPP),
            8 => Ok(self.get(key).map(|member| member.id)),
            _ => refused("cookies of sockets are read from values of 8 bytes", errno::ENOSPC),
        }
    }

    /// The key after another: arrays count their empty elements too.
    pub(crate) fn next_key(&self, after: Option<&[u8]>) -> Option<Vec<u8>> {
        if !self.table.is_keyed() {
            let next = match after.and_then(|key| self.index(key)) {
                Some(index) if index < self.table.len() => index + 1,
                _ => 0,
            };
            return (next < self.table.len()).then(|| next.to_ne_bytes().to_vec());
        }
        let owned = self.lock(Patience::Endless).ok()?;
        match after.filter(|key| owned.contains_key(*key)) {
            Some(key) => owned
                .range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
                .next()
                .map(|(key, _)| key.to_vec()),
            None => owned.keys().next().map(|key| key.to_vec()),
        }
    }

    /// Copies cookies of sockets, if they can be read.
    pub(crate) fn batch(&self, cursor: &mut Cursor, count: usize, out: &mut Batch) {
        if !self.rules.read || self.values().host_size() != 8 {
            return;
        }
        let Ok(owned) = self.lock(Patience::Endless) else { return };
        let from = cursor.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let left = count.saturating_sub(out.len());
        for (key, member) in owned.range::<[u8], _>((from, Bound::Unbounded)).take(left) {
            out.push_back((key.to_vec(), member.id.to_ne_bytes().to_vec()));
        }
        drop(owned);
        if let Some((key, _)) = out.back() {
            cursor.after = Some(key.clone());
        }
    }

    /// What a program's look-up gives; null for nothing.
    ///
    /// # Safety
    ///
    /// As for [`find`](Self::find).
    #[inline]
    pub(crate) unsafe fn look_up(&self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let found = unsafe { self.find(key, cpu) }.filter(|_| self.rules.seen);
        std::ptr::with_exposed_provenance_mut(found.map_or(0, |member| member.address as usize))
    }

    /// The element of a key, for programs.
    ///
    /// # Safety
    ///
    /// `key` is readable for the key size; `cpu` is the slot of the calling thread, inside a normal section, in which
    /// the result is used.
    #[inline]
    pub(crate) unsafe fn find<'a>(&self, key: *const u8, cpu: u32) -> Option<&'a Member> {
        // SAFETY: by the caller's contract.
        let address = unsafe { self.table.find(key, cpu) };
        // SAFETY: addresses in the table are those of members, which live until the section ends.
        unsafe { std::ptr::with_exposed_provenance::<Member>(address as usize).as_ref() }
    }

    fn index(&self, key: &[u8]) -> Option<u32> {
        debug_assert_eq!(key.len(), self.key_size);
        (!self.table.is_keyed()).then(|| key.first_chunk().map_or(u32::MAX, |key| u32::from_ne_bytes(*key)))
    }

    pub(crate) fn key_size(&self) -> usize {
        self.key_size
    }

    pub(crate) fn len(&self) -> u32 {
        self.table.filled()
    }

    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }

    pub(crate) fn stats(&self) -> Option<(usize, CacheStats)> {
        self.table.stats()
    }

    pub(crate) fn values(&self) -> &Values {
        self.table.values()
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("of", &self.rules.what).field("table", &self.table).finish()
    }
}
