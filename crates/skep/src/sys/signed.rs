//! Signatures of the programs that clients load.

use super::SysEngine;
use crate::error::SignatureFault;
use crate::signature::{Keys, verify};
use skep_sys::{Errno, Signature};
use std::sync::Arc;

/// Whose signatures are right.
#[derive(Clone, Default)]
pub(super) struct Trusted(Option<Arc<dyn Keys>>);

impl std::fmt::Debug for Trusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trusted").field(&self.0.is_some()).finish()
    }
}

impl SysEngine {
    /// Sets the keys by which clients' signatures of programs are checked (`signature` of `BPF_PROG_LOAD`, as since
    /// Linux 6.18). Without keys a program that has a signature is refused. Programs without one are loaded, unless the
    /// runtime [requires signatures](crate::RuntimeBuilder::require_signatures).
    #[must_use]
    pub fn trusted(mut self, keys: impl Keys + 'static) -> Self {
        self.trusted = Trusted(Some(Arc::new(keys)));
        self
    }

    pub(super) fn check(&self, signature: &Signature<'_>, log: &mut dyn FnMut(&str)) -> Result<(), Errno> {
        let shared = self.runtime.shared();
        let Some(keys) = self.trusted.0.as_deref().or(shared.signers.as_deref()) else {
            log("the program is signed, and no keys are trusted here");
            self.note_lack("trusted key", "for a signed program");
            return Err(Errno::ENOKEY);
        };
        verify(signature.insns, signature.message, keys).map(drop).map_err(|fault| {
            log(&fault.to_string());
            errno(&fault)
        })
    }
}

/// Linux's number for a program that is not loaded for its signature.
pub(super) fn errno(fault: &SignatureFault) -> Errno {
    match fault {
        SignatureFault::Malformed { .. } => Errno::EBADMSG,
        SignatureFault::Wrong { .. } => Errno::EKEYREJECTED,
        SignatureFault::UnknownSigner { .. } => Errno::ENOKEY,
        SignatureFault::Expired { .. } => Errno::EKEYEXPIRED,
        SignatureFault::NotAccepted { .. } => Errno::ENOPKG,
        SignatureFault::Unsigned | SignatureFault::NoBytes => Errno::EPERM,
    }
}
