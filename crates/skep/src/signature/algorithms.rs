//! Which algorithms are accepted, and the check of a signature itself, which is ring's.
//!
//! The certificate says the kind of key, the message the kind of signature and the digest. They must fit together: a
//! signature is only checked by an algorithm for that kind of key.

use cms::signed_data::SignerInfo;
use der::asn1::ObjectIdentifier;
use der::{Decode, Encode, Sequence};
use ring::signature::{self as of, VerificationAlgorithm};
use ring::{digest, signature::UnparsedPublicKey};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const RSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12");
const RSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13");
const MGF1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.8");

const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// Those that are accepted, for messages.
const ACCEPTED: &str = "RSA with 2048 to 8192 bits (PKCS#1 1.5, or PSS with a salt as long as the digest) with \
                        SHA-256, SHA-384 or SHA-512, ECDSA on P-256 and P-384 with SHA-256 or SHA-384, and Ed25519 \
                        with SHA-512 are";

/// `RSASSA-PSS-params` of RFC 4055. The defaults mean SHA-1, which is not accepted, so nothing may be left out but
/// the trailer.
#[derive(Sequence)]
struct PssParameters {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    hash: AlgorithmIdentifierOwned,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT")]
    mask: AlgorithmIdentifierOwned,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT")]
    salt: u16,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    trailer: Option<u8>,
}

/// The digest that a signer used.
pub(super) fn digest(info: &SignerInfo) -> Result<&'static digest::Algorithm, String> {
    match info.digest_alg.oid {
        SHA256 => Ok(&digest::SHA256),
        SHA384 => Ok(&digest::SHA384),
        SHA512 => Ok(&digest::SHA512),
        other => Err(format!("the digest {other} is not accepted; {ACCEPTED}")),
    }
}

/// Checks a signature of these bytes. `Ok(false)`: it is wrong.
pub(super) fn is_right(
    info: &SignerInfo,
    key: &SubjectPublicKeyInfoOwned,
    bytes: &[u8],
) -> Result<bool, String> {
    let algorithm = algorithm(info, &key.algorithm)?;
    let Some(public) = key.subject_public_key.as_bytes() else {
        return Err("its key is not a number of bytes".into());
    };
    Ok(UnparsedPublicKey::new(algorithm, public).verify(bytes, info.signature.as_bytes()).is_ok())
}

fn algorithm(
    info: &SignerInfo,
    key: &AlgorithmIdentifierOwned,
) -> Result<&'static dyn VerificationAlgorithm, String> {
    let (signed, hash) = (info.signature_algorithm.oid, info.digest_alg.oid);
    let curve = || key.parameters.as_ref()?.decode_as::<ObjectIdentifier>().ok();
    Ok(match (key.oid, signed, hash) {
        (RSA, RSA | RSA_SHA256, SHA256) => &of::RSA_PKCS1_2048_8192_SHA256,
        (RSA, RSA | RSA_SHA384, SHA384) => &of::RSA_PKCS1_2048_8192_SHA384,
        (RSA, RSA | RSA_SHA512, SHA512) => &of::RSA_PKCS1_2048_8192_SHA512,
        (RSA, RSA_PSS, hash) if is_usual_pss(&info.signature_algorithm, hash) => match hash {
            SHA256 => &of::RSA_PSS_2048_8192_SHA256,
            SHA384 => &of::RSA_PSS_2048_8192_SHA384,
            _ => &of::RSA_PSS_2048_8192_SHA512,
        },
        (EC, ECDSA_SHA256, SHA256) if curve() == Some(P256) => &of::ECDSA_P256_SHA256_ASN1,
        (EC, ECDSA_SHA384, SHA384) if curve() == Some(P256) => &of::ECDSA_P256_SHA384_ASN1,
        (EC, ECDSA_SHA256, SHA256) if curve() == Some(P384) => &of::ECDSA_P384_SHA256_ASN1,
        (EC, ECDSA_SHA384, SHA384) if curve() == Some(P384) => &of::ECDSA_P384_SHA384_ASN1,
        // RFC 8419: Ed25519 goes with SHA-512 and no other digest.
        (ED25519, ED25519, SHA512) => &of::ED25519,
        _ => {
            return Err(format!(
                "a signature {signed} by a key {} with the digest {hash}, or its parameters, are not; {ACCEPTED}",
                key.oid
            ));
        }
    })
}

/// Whether the parameters say what everybody uses: one hash everywhere, and a salt as long as its digest.
fn is_usual_pss(algorithm: &AlgorithmIdentifierOwned, hash: ObjectIdentifier) -> bool {
    let len = match hash {
        SHA256 => 32,
        SHA384 => 48,
        SHA512 => 64,
        _ => return false,
    };
    let parameters = algorithm.parameters.as_ref().and_then(|any| any.to_der().ok());
    let Some(parameters) = parameters.and_then(|bytes| PssParameters::from_der(&bytes).ok()) else {
        return false;
    };
    let inner = parameters.mask.parameters.as_ref().and_then(|any| any.to_der().ok());
    let inner = inner.and_then(|bytes| AlgorithmIdentifierOwned::from_der(&bytes).ok());
    parameters.hash.oid == hash
        && parameters.mask.oid == MGF1
        && inner.is_some_and(|inner| inner.oid == hash)
        && parameters.salt == len
        && parameters.trailer.unwrap_or(1) == 1
}
