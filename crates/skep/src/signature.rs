//! Signed objects: a runtime loads only what somebody signed whom the host trusts.
//!
//! A signature is a detached CMS message (RFC 5652, once PKCS#7) over the bytes of the object file, as `openssl cms`
//! makes it. For bare instructions it is over the instructions, as Linux 6.18 has it for programs (`signature` in
//! `BPF_PROG_LOAD`).
//!
//! ```text
//!   bytes --Object::parse--> Object, with a copy of the same bytes   Object::with_signature(message)
//!                               |
//!   Linker::load:  message --> who signed? --> Keys::trusted --> certificate --> is the signature right for the bytes?
//! ```
//!
//! ```
//! use skep::signature::Certificates;
//! use skep::{Object, Runtime};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signatures");
//! let mut trusted = Certificates::new();
//! trusted.add(&std::fs::read(format!("{folder}/rsa.cert"))?)?;
//! let runtime = Runtime::builder().require_signatures(trusted).build()?;
//!
//! let object = Object::open(format!("{folder}/content"))?;
//! assert!(runtime.load(&object).is_err(), "it is not signed");
//! let signature = std::fs::read(format!("{folder}/rsa-sha256"))?;
//! runtime.load(&object.with_signature(&signature))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked
//!
//! The certificate of the signer itself must be trusted: certificates in the message are not used, and no chains are
//! followed. So an authority cannot be tricked into a signer, and who may sign is what the host lists. The signer
//! that the message names must be that of the certificate, the certificate must be valid now, and be for signatures
//! if it says what it is for. One trusted signer is enough; a wrong signature of a trusted one is refused whatever
//! others there are.
//!
//! # What would break it
//!
//! A second read of the file: bytes could change between the check and the load. So the object keeps the bytes that
//! it was parsed from, and these are what is checked. A signature with attributes is over the attributes, and these
//! have the digest of the content: without a check that the digest is the content's, any content would do. And the
//! encoded attributes must not pass for content: a message without attributes is refused if the content could be such
//! an encoding.

mod algorithms;
mod keys;
mod message;

pub use crate::error::{SignatureFault, SignerId};
pub use keys::{Certificates, Keys};
pub use message::{Signed, verify};
