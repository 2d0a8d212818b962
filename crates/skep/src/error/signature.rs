//! Why an object is not loaded for its signature.

use std::fmt;

/// Who signed, as the message says it. Nothing of it is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignerId {
    /// By the certificate.
    Certificate {
        /// Who issued it, as RFC 4514 writes names.
        issuer: String,
        /// Its number.
        serial: Vec<u8>,
    },
    /// By the number of the key (the certificate's extension SubjectKeyIdentifier).
    Key {
        /// The number.
        id: Vec<u8>,
    },
}

impl fmt::Display for SignerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().take(32).try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Self::Certificate { issuer, serial } => {
                write!(f, "the certificate number ")?;
                hex(f, serial)?;
                write!(f, " of {issuer:.200}")
            }
            Self::Key { id } => {
                write!(f, "the key ")?;
                hex(f, id)
            }
        }
    }
}

/// What is wrong with a signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureFault {
    /// There is none, and the runtime requires one.
    #[error(
        "it is not signed, and this runtime loads only signed objects; give its signature with Object::with_signature"
    )]
    Unsigned,
    /// The bytes that a signature would be over are not known: the host made the object from decoded instructions.
    #[error(
        "it was not made from bytes, so no signature can be checked; use Object::parse, Object::open or Object::from_bytecode"
    )]
    NoBytes,
    /// The message is no detached signature in the form that is understood.
    #[error("its signature cannot be used: {why}; make one with: openssl cms -sign -binary -outform DER")]
    Malformed {
        /// What is wrong with it.
        why: String,
    },
    /// The signature, or what it says of the content, is wrong: the object was changed, or the signature is another
    /// one's.
    #[error("the signature of {signer} is wrong: {why}")]
    Wrong {
        /// The subject of the trusted certificate.
        signer: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Nobody who signed is trusted.
    #[error("it is signed by {}, which is not trusted here", all_of(.signers))]
    UnknownSigner {
        /// All who signed.
        signers: Vec<SignerId>,
    },
    /// The certificate of the signer is not valid at this time.
    #[error("the certificate of {signer} is valid from {from} to {to}, and now it is {now} (UTC)")]
    Expired {
        /// The subject of the certificate.
        signer: String,
        /// When it begins to be valid.
        from: String,
        /// When it ends.
        to: String,
        /// The time now.
        now: String,
    },
    /// The key or the certificate is of a kind that is not accepted.
    #[error("the signature of {signer} is not accepted: {why}")]
    NotAccepted {
        /// The subject of the certificate.
        signer: String,
        /// Why not, and what is.
        why: String,
    },
}

fn all_of(signers: &[SignerId]) -> String {
    signers.iter().map(SignerId::to_string).collect::<Vec<_>>().join(" and by ")
}
