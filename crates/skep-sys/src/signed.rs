//! Signed programs: what `BPF_PROG_LOAD` says of a signature, as since Linux 6.18.
//!
//! A signature is a detached PKCS#7 message over the instructions as the caller passes them: descriptors of maps are
//! part of what is signed, and what the maps contain is not. Signers therefore name maps by indices (`fd_array`).
//!
//! Linux takes the number of one of its own keyrings, or of one of the caller's. There is one set of keys here, the
//! host's, and it stands for all of these. Keyrings of the caller's own are not looked into: whoever may put a key
//! there would sign for himself.

use crate::attr::ProgLoad;
use crate::caller::Caller;
use crate::engine::{Engine, Signature};
use crate::errno::Errno;
use crate::log::Log;
use crate::system::System;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The longest message. Linux copies as much as it has memory for; a signature has some hundred bytes.
const MOST: u32 = 16 << 10;
/// Numbers of Linux's own keyrings are up to this: the built-in one, the secondary one, that of the platform.
const LAST_SYSTEM: i32 = 2;
/// `KEY_SPEC_USER_SESSION_KEYRING`, the least of the numbers that mean keyrings of the caller, its session and its
/// user.
/// `KEY_SPEC_THREAD_KEYRING` is the greatest, -1.
const USER_SESSION: i32 = -5;

/// A signature, and what it is over.
pub(crate) struct SignedProgram {
    insns: Vec<u8>,
    message: Vec<u8>,
}

impl SignedProgram {
    pub(crate) fn as_request(&self) -> Signature<'_> {
        Signature { insns: &self.insns, message: &self.message }
    }
}

impl<E: Engine> System<E> {
    /// The signature of a load, if it has one; that it is right was checked.
    pub(crate) fn signature(
        &self,
        caller: &mut impl Caller<E>,
        load: &ProgLoad,
        insns: &[u8],
    ) -> Result<Option<SignedProgram>, Errno> {
        if load.signature == 0 {
            return Ok(None);
        }
        if load.signature_size > MOST || !(USER_SESSION..=LAST_SYSTEM).contains(&load.keyring_id) {
            return Err(Errno::EINVAL);
        }
        let mut message = vec![0; load.signature_size as usize];
        // Linux does not tell this from a lack of memory.
        caller.read(load.signature, &mut message).or(Err(Errno::ENOMEM))?;
        let signed = SignedProgram { insns: insns.to_vec(), message };
        let mut reason = String::new();
        let checked = self.engine().check_signature(&signed.as_request(), &mut |line| reason.push_str(line));
        if let Err(error) = checked {
            // Linux logs nothing of this. A log that cannot be written is no other error.
            if let Ok(mut log) = Log::new(load.log_level, load.log_buf, load.log_size) {
                log.line(&reason);
                let _unwritten = log.finish(caller);
            }
            return Err(error);
        }
        Ok(Some(signed))
    }
}
