//! The kinds of packs, and detection of what this system allows.
//!
//! ```text
//!              executable view                      written through                       open in between
//!   Memfd      r-xs of a sealed memory file         rw-s alias at a secret place          nothing
//!   Hardened   r-xs of a memory file                pwrite to the file                    the file's descriptor
//!   Procmem    r-xp anonymous                       pwrite to /proc/self/mem              that descriptor
//! ```
//!
//! [`Backing`](crate::Backing) documents the guarantees of each for hosts.
//!
//! Protocol: making the first pack detects what the system allows, once ([`resolve`]); all later packs are made the
//! same way. A lack of memory or descriptors is an error, and no reason to choose another backing for good.

use std::ffi::CStr;

use super::Pack;
use crate::error::Error;
pub(crate) use crate::occupancy::Backing as Medium;

/// The backing of packs, and their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) medium: Medium,
    /// Whether [`Pack::promote`] may move packs to huge pages. Packs always begin on base pages, so that memory is
    /// committed as it is populated (except if the administrator forces huge pages on all memory files: then a file
    /// written by `pwrite` gets them at once).
    pub(crate) huge: bool,
    /// Whether packs are never unmapped, so that they may be sealed against it (mseal, Linux 6.10).
    pub(crate) permanent: bool,
    /// The protection flag that enforces landing pads in the executable view; 0 for none.
    pub(crate) landing_pads: u32,
    /// The name of the memory file in /proc/PID/maps, after `/memfd:`.
    pub(crate) name: &'static CStr,
}

impl Kind {
    /// Packs of `medium` that stay on base pages and can be unmapped.
    pub(crate) const fn new(medium: Medium) -> Self {
        Self { medium, huge: false, permanent: false, landing_pads: 0, name: c"skep-text" }
    }
}

/// The first pack, and the kind that was found for it.
pub(crate) struct Resolved {
    pub(crate) kind: Kind,
    pub(crate) pack: Pack,
    /// The backings that were tried before, each with the error that refused it.
    pub(crate) refused: Vec<(&'static str, Error)>,
}

/// Makes the first pack with the requested backing, or with the best that the system allows.
///
/// `wanted` names the options; its medium is only a preference unless `only` is set. Without `only`, Memfd and
/// Procmem are tried, in this order; Hardened is slower and must be requested.
///
/// # Errors
///
/// With `only`, the error of that backing; otherwise [`Error::NoBacking`] with the errors of all, or the resource
/// that ran out.
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
