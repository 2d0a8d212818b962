//! What packs can be made of, and finding out what this system allows.
//!
//! ```text
//!              executable view                      written through                       open in between
//!   Memfd      r-xs of a sealed memory file         rw-s alias at a secret place          nothing
//!   Hardened   r-xs of a memory file                pwrite to the file                    the file's descriptor
//!   Procmem    r-xp anonymous                       pwrite to /proc/self/mem              that descriptor
//! ```
//!
//! What each promises, and not, is said where hosts choose: [`Backing`](crate::Backing).
//!
//! Protocol: what the system allows is found out once, by making the first pack ([`resolve`]); all later ones are made
//! the same way. A lack of memory or descriptors is an error and not a reason to choose another way for good.

use std::ffi::CStr;

use super::Pack;
use crate::error::Error;
pub(crate) use crate::occupancy::Backing as Medium;

/// What packs are made of, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) medium: Medium,
    /// Whether [`Pack::promote`] may move packs into huge pages. They begin on base pages in any case, so that memory is
    /// used as it is populated (but where the administrator forces huge pages on all memory files, a file written by
    /// `pwrite` gets them at once).
    pub(crate) huge: bool,
    /// Whether packs are never unmapped, and so may be sealed against it (mseal, Linux 6.10).
    pub(crate) permanent: bool,
    /// What the protection of the executable view has besides, so that landing pads are checked in it; 0 where they are
    /// not.
    pub(crate) landing_pads: u32,
    /// What the memory file is called in /proc/PID/maps, after `/memfd:`.
    pub(crate) name: &'static CStr,
}

impl Kind {
    /// Packs of `medium` that stay on base pages and can be unmapped.
    pub(crate) const fn new(medium: Medium) -> Self {
        Self { medium, huge: false, permanent: false, landing_pads: 0, name: c"skep-text" }
    }
}

/// The first pack, and what came of finding out how to make it.
pub(crate) struct Resolved {
    pub(crate) kind: Kind,
    pub(crate) pack: Pack,
    /// The ways that were tried before, and what each was refused by.
    pub(crate) refused: Vec<(&'static str, Error)>,
}

/// Makes the first pack in the wanted way, or in the best that the system allows.
///
/// `wanted` names the options; its medium is only a wish unless `only` is set. Without `only`, tried are Memfd and
/// Procmem, in this order; Hardened is slower and must be asked for.
///
/// # Errors
///
/// With `only`, what this way was refused by; otherwise [`Error::NoBacking`] with what all were refused by, or what
/// ran out.
///
/// # Safety
///
/// That of [`Pack::new`].
pub(crate) unsafe fn resolve(
    only: Option<Medium>,
    wanted: Kind,
    place: usize,
    len: usize,
    populate: usize,
) -> Result<Resolved, Error> {
    let mut refused = Vec::new();
    let all = [Medium::Memfd, Medium::Procmem];
    let ways = only.as_ref().map_or(&all[..], std::slice::from_ref);
    for &medium in ways {
        let kind = Kind { medium, ..wanted };
        // SAFETY: the caller's; a pack that failed left the place as it was.
        match unsafe { Pack::new(&kind, place, len, populate) } {
            Ok(pack) => return Ok(Resolved { kind, pack, refused }),
            Err(error) if only.is_some() || error.may_pass() => return Err(error),
            Err(error) => refused.push((medium.name(), error)),
        }
    }
    Err(Error::NoBacking { refused })
}
