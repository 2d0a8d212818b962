//! The bytes that an object was made from, for the check of a signature.
//!
//! They are those that were parsed, and nothing changes them: no second read of a file comes between the check and
//! the load.

use super::Object;
use crate::error::Error;
use crate::signature::{Keys, SignatureFault, Signed, verify};
use std::fmt;
use std::sync::Arc;

/// Bytes, and the signature that came with them.
#[derive(Clone, Default)]
pub(super) struct Content {
    bytes: Option<Arc<[u8]>>,
    signature: Option<Arc<[u8]>>,
    name: Option<Arc<str>>,
}

impl Content {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: Some(bytes.into()), ..Self::default() }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content")
            .field("name", &self.name)
            .field("is_signed", &self.signature.is_some())
            .finish_non_exhaustive()
    }
}

impl Object {
    /// Gives the object its signature: a detached CMS message in DER, over the bytes that it was made from. It is
    /// checked by loads into a runtime that requires signatures
    /// ([`RuntimeBuilder::require_signatures`](crate::RuntimeBuilder::require_signatures)), and by
    /// [`Object::verify_signature`].
    #[must_use]
    pub fn with_signature(mut self, signature: &[u8]) -> Self {
        self.signed.signature = Some(signature.into());
        self
    }

    /// Gives the object the bytes that its signature is over, and the signature.
    #[cfg(feature = "sys")]
    pub(crate) fn sign(&mut self, bytes: &[u8], signature: &[u8]) {
        let name = self.signed.name.take();
        self.signed = Content { bytes: Some(bytes.into()), signature: Some(signature.into()), name };
    }

    /// Sets the name that errors about its signature have: that of its file, which [`Object::open`] sets.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.signed.name = Some(name.into());
        self
    }

    /// Checks the object's signature without a load.
    ///
    /// # Errors
    ///
    /// [`Error::Signature`].
    pub fn verify_signature(&self, keys: &dyn Keys) -> Result<Signed, Error> {
        let Content { bytes, signature, name } = &self.signed;
        let checked = match (signature, bytes) {
            (None, _) => Err(SignatureFault::Unsigned),
            (Some(_), None) => Err(SignatureFault::NoBytes),
            (Some(signature), Some(bytes)) => verify(bytes, signature, keys),
        };
        let object = || name.as_deref().unwrap_or("the object").to_owned();
        checked.map_err(|fault| Error::Signature { object: object(), fault: Box::new(fault) })
    }
}
