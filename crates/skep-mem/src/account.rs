//! Accounts: a limit that many owners of memory share, such as all maps of one tenant.
//!
//! ```text
//!   Account: used <= limit          Charge of map 1: held     sum of all charges' held = used
//!                                   Charge of map 2: held
//! ```
//!
//! A [`Charge`] is kept with what it is for, and dropped after that has been returned to the system. So nothing can be
//! forgotten: an account is exact whenever no thread is between its memory and its charge. What would break it: memory
//! that is returned before its charge shrinks is accounted for too long, never too short; the other way round would let
//! a tenant hold more than the limit for a moment.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Error;

/// A named limit, shared by all [charges](Charge) to it. The unit is the owner's affair: bytes, or a number of things.
pub struct Account {
    name: Box<str>,
    what: &'static str,
    used: AtomicU64,
    peak: AtomicU64,
    refused: AtomicU64,
    limit: AtomicU64,
}

/// What one owner has taken from an [`Account`], or from none. Dropping it gives all of it back.
#[derive(Default)]
pub struct Charge {
    account: Option<Arc<Account>>,
    held: AtomicU64,
}

impl Account {
    /// An account from which nothing is taken. For people: its name, and what it counts, in the plural.
    pub fn new(name: &str, what: &'static str, limit: u64) -> Self {
        let zero = AtomicU64::default;
        Self { name: name.into(), what, used: zero(), peak: zero(), refused: zero(), limit: limit.into() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it counts.
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// How much is taken. Relaxed, here and below: a number that orders nothing.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The most that was taken at a time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// How often more was asked for than was left.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// How much can be taken.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Changes the limit. Below what is taken, nothing more can be taken until enough is given back.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    /// Why so much could not be taken now, if it could not. Takes and counts nothing.
    fn lacks(&self, amount: u64) -> Option<Error> {
        let (used, limit) = (self.used(), self.limit());
        let fits = used.checked_add(amount).is_some_and(|sum| sum <= limit);
        (!fits).then_some(Error::Account { used, wanted: amount, limit })
    }

    fn take(&self, amount: u64) -> Result<(), Error> {
        let limit = self.limit();
        let more = |used: u64| used.checked_add(amount).filter(|sum| *sum <= limit);
        match self.used.fetch_update(Relaxed, Relaxed, more) {
            Ok(before) => {
                self.peak.fetch_max(before + amount, Relaxed);
                Ok(())
            }
            Err(used) => {
                self.refused.fetch_add(1, Relaxed);
                Err(Error::Account { used, wanted: amount, limit })
            }
        }
    }
}

impl Charge {
    /// Takes an amount from an account; from none, always succeeds.
    ///
    /// # Errors
    ///
    /// [`Error::Account`] if less is left.
    pub fn new(account: Option<&Arc<Account>>, amount: u64) -> Result<Self, Error> {
        let charge = Self { account: account.cloned(), held: AtomicU64::default() };
        charge.grow(amount)?;
        Ok(charge)
    }

    /// Takes more.
    ///
    /// # Errors
    ///
    /// [`Error::Account`] if less is left; nothing has changed then.
    pub fn grow(&self, amount: u64) -> Result<(), Error> {
        if let Some(account) = &self.account {
            account.take(amount)?;
            self.held.fetch_add(amount, Relaxed);
        }
        Ok(())
    }

    /// Why [`grow`](Self::grow) would fail now, if it would. Nothing changes.
    pub(crate) fn lacks(&self, amount: u64) -> Option<Error> {
        self.account.as_ref()?.lacks(amount)
    }

    /// Gives some of it back; at most what is held.
    pub fn shrink(&self, amount: u64) {
        if let Some(account) = &self.account {
            let less = |held: u64| Some(held.saturating_sub(amount));
            let held = self.held.fetch_update(Relaxed, Relaxed, less).unwrap_or_default();
            account.used.fetch_sub(held.min(amount), Relaxed);
        }
    }

    /// What is held. 0 without an account.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.used.fetch_sub(*self.held.get_mut(), Relaxed);
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}: {} of {})", self.name, self.used(), self.limit())
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} to {:?})", self.held(), self.account)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_never_exceeded_and_empty_in_the_end() {
        let account = Arc::new(Account::new("t", "bytes", 1000));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for amount in 0..5000 {
                        let Ok(charge) = Charge::new(Some(&account), amount % 400) else { continue };
                        assert!(account.used() <= 1000 && charge.held() == amount % 400);
                        if charge.grow(100).is_ok() {
                            charge.shrink(50);
                        }
                    }
                });
            }
        });
        assert_eq!(account.used(), 0);
        assert!(account.peak() <= 1000);
    }

    #[test]
    fn what_is_not_left_is_refused_and_nothing_changes() {
        let account = Arc::new(Account::new("t", "bytes", 10));
        let first = Charge::new(Some(&account), 7).unwrap();
        assert_eq!(first.grow(4), Err(Error::Account { used: 7, wanted: 4, limit: 10 }));
        assert_eq!(first.grow(u64::MAX), Err(Error::Account { used: 7, wanted: u64::MAX, limit: 10 }));
        assert_eq!((account.used(), first.held(), account.refused()), (7, 7, 2));
        first.shrink(100);
        assert_eq!((account.used(), first.held()), (0, 0));
        account.set_limit(20);
        first.grow(20).unwrap();
        account.set_limit(5);
        assert!(Charge::new(Some(&account), 1).is_err());
        drop(first);
        assert_eq!((account.used(), account.peak()), (0, 20));
        assert!(Charge::new(None, u64::MAX).is_ok());
    }
}
