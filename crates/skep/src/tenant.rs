//! Tenants: on whose behalf objects are loaded, and what they may take.
//!
//! ```text
//!   Tenant --- bytes of maps   <--charges-- elements, pages of arenas, objects that programs allocate: as they grow
//!          --- maps            <----------- each map, also those that the host creates for it
//!          --- bytes of code   <----------- each program's text, until its memory is free again
//!          --- programs        <----------- each program
//! ```
//!
//! A charge is kept by the memory that it is for, and dropped after that: a map's with the last reference to the map,
//! of which a map of maps may have one and a run that found it there another; a text's when its readers have left and
//! its memory is free. So a tenant pays for what waits for readers, and cannot get around a quota by dropping things in
//! a hurry.

use crate::error::Error;
use skep_jit::Compiled;
use skep_maps::{Account, Charge, MapError, MemoryError};
use std::fmt;
use std::sync::Arc;

/// On whose behalf a host loads objects and creates maps, and what all of that may take together.
///
/// ```
/// use skep::{Error, Object, Quota, Runtime, Tenant};
///
/// let runtime = Runtime::new()?;
/// let tenant = Tenant::new("customer-7", Quota::new().programs(1).code_memory(1 << 20));
/// let insns = skep::isa::assemble("r0 = 0\nexit").expect("the text is right");
/// let object = Object::from_insns("nothing", &skep::abi::RAW, insns);
///
/// let first = runtime.linker(&object).tenant(&tenant).load()?;
/// let second = runtime.linker(&object).tenant(&tenant).load();
/// let text = "tenant customer-7: 1 of 1 programs are used, and 1 more would exceed the quota; \
///             unload something, or raise the quota";
/// assert_eq!(second.unwrap_err().to_string(), text);
///
/// drop(first);
/// runtime.linker(&object).tenant(&tenant).load()?;
/// # Ok::<(), Error>(())
/// ```
pub struct Tenant {
    name: Box<str>,
    pub(crate) map_memory: Arc<Account>,
    pub(crate) maps: Arc<Account>,
    pub(crate) code_memory: Arc<Account>,
    pub(crate) programs: Arc<Account>,
    pub(crate) max_walked: u64,
}

/// What a [`Tenant`] may take at a time. Without a limit, only those of the runtime apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Quota {
    map_memory: u64,
    maps: u64,
    code_memory: u64,
    programs: u64,
    max_walked: u64,
}

/// What a tenant has taken of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// How much it has now.
    pub used: u64,
    /// The most that it had at a time.
    pub peak: u64,
    /// The limit.
    pub limit: u64,
    /// How often it was refused more. An attempt that was repeated counts each time.
    pub refused: u64,
}

/// The things that a [`Quota`] limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// Bytes of maps.
    MapMemory,
    /// Maps.
    Maps,
    /// Bytes of code.
    CodeMemory,
    /// Programs.
    Programs,
}

impl Quota {
    /// No limits.
    pub fn new() -> Self {
        let none = u64::MAX;
        Self { map_memory: none, maps: none, code_memory: none, programs: none, max_walked: none }
    }

    /// The most bytes of memory of its maps together: tables, elements and their copies for each virtual CPU, elements
    /// that were deleted and wait for readers, rings, pages of arenas, and objects that its programs allocate.
    ///
    /// Hash tables and tries take memory as elements are added, whatever `BPF_F_NO_PREALLOC` says. If there is none
    /// left, programs get the error number of `ENOMEM`, a null object or no pages; hosts get
    /// [`MapError::Quota`].
    pub fn map_memory(mut self, bytes: u64) -> Self {
        self.map_memory = bytes;
        self
    }

    /// The most maps.
    pub fn maps(mut self, maps: u64) -> Self {
        self.maps = maps;
        self
    }

    /// The most bytes of memory of its code, in whole chunks of 32 bytes, code that was dropped and waits for readers
    /// included. Not included are the stubs of tail calls and attachments: at most 128 bytes for each tail call in a
    /// program, or function that is replaced or watched.
    pub fn code_memory(mut self, bytes: u64) -> Self {
        self.code_memory = bytes;
        self
    }

    /// The most programs.
    pub fn programs(mut self, programs: u64) -> Self {
        self.programs = programs;
        self
    }

    /// The most instructions that the verifier walks for one of its programs, if that is below
    /// [`RuntimeBuilder::max_walked`](crate::RuntimeBuilder::max_walked).
    pub fn max_walked(mut self, instructions: u64) -> Self {
        self.max_walked = instructions;
        self
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self::new()
    }
}

impl Tenant {
    /// A tenant that has nothing. Its name is for messages and metrics. It may use several runtimes.
    pub fn new(name: &str, quota: Quota) -> Arc<Self> {
        let account = |what, limit| Arc::new(Account::new(name, what, limit));
        Arc::new(Self {
            name: name.into(),
            map_memory: account("bytes of maps", quota.map_memory),
            maps: account("maps", quota.maps),
            code_memory: account("bytes of code", quota.code_memory),
            programs: account("programs", quota.programs),
            max_walked: quota.max_walked,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has taken.
    pub fn usage(&self, of: Resource) -> Usage {
        let account = self.account(of);
        Usage {
            used: account.used(),
            peak: account.peak(),
            limit: account.limit(),
            refused: account.refused(),
        }
    }

    /// Changes a limit. What is taken stays taken.
    pub fn set_limit(&self, of: Resource, limit: u64) {
        self.account(of).set_limit(limit);
    }

    /// Charges a program's code, until its memory is free.
    pub(crate) fn charge_code(&self, compiled: &mut Compiled) -> Result<(), Error> {
        let charge = charge(&self.code_memory, compiled.text().occupied() as u64)?;
        compiled.keep_until_free(charge);
        Ok(())
    }

    /// Charges a program.
    pub(crate) fn charge_program(&self) -> Result<Charge, Error> {
        charge(&self.programs, 1)
    }

    fn account(&self, of: Resource) -> &Arc<Account> {
        match of {
            Resource::MapMemory => &self.map_memory,
            Resource::Maps => &self.maps,
            Resource::CodeMemory => &self.code_memory,
            Resource::Programs => &self.programs,
        }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("name", &self.name)
            .field("map_memory", &self.map_memory)
            .field("code_memory", &self.code_memory)
            .finish_non_exhaustive()
    }
}

impl Error {
    /// The error of a map as one of a load.
    pub(crate) fn of_map(error: MapError) -> Self {
        match error {
            MapError::Quota { account, what, used, wanted, limit, .. } => {
                Self::Quota { tenant: account, what, used, wanted, limit }
            }
            error => Self::Map(error),
        }
    }
}

fn charge(account: &Arc<Account>, amount: u64) -> Result<Charge, Error> {
    Charge::new(Some(account), amount).map_err(|error| match error {
        MemoryError::Account { used, wanted, limit } => {
            let tenant = account.name().to_owned();
            Error::Quota { tenant, what: account.what(), used, wanted, limit }
        }
        // A charge fails in no other way.
        _ => unreachable!("a charge has one error"),
    })
}
