//! The message: who signed what, and whether that is this content.

use super::algorithms::{digest, is_right};
use super::keys::{Keys, is_of, is_valid, named};
use crate::error::{SignatureFault, SignerId};
use cms::content_info::ContentInfo;
use cms::signed_data::{SignedData, SignerInfo};
use der::asn1::{ObjectIdentifier, OctetStringRef};
use der::{Decode, Encode};
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::attr::Attributes;
use x509_cert::ext::pkix::KeyUsage;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");

/// The longest message. A signature with its certificates has a few thousand bytes. The parser sorts sets in a time
/// that grows with the square of their length: four times as many bytes would keep it busy for seconds.
const MOST_BYTES: usize = 16 << 10;
/// The most signers: each may cost a check.
const MOST_SIGNERS: usize = 16;
/// The first byte of encoded attributes.
const SET: u8 = 0x31;

/// A right signature of somebody who is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signed {
    /// The subject of the signer's certificate, as RFC 4514 writes names.
    pub signer: String,
}

/// Checks a detached signature (CMS, DER) of these bytes.
///
/// # Errors
///
/// [`SignatureFault`], which says why not.
pub fn verify(content: &[u8], signature: &[u8], keys: &dyn Keys) -> Result<Signed, SignatureFault> {
    let infos = parse(signature)?;
    let mut signed = None;
    let mut unknown: Vec<SignerId> = Vec::new();
    for info in &infos {
        let id = named(&info.sid);
        match keys.trusted(&id).and_then(|bytes| Certificate::from_der(&bytes).ok()) {
            Some(certificate) if is_of(&certificate, &info.sid) => {
                let right = check(info, &certificate, content, keys.now())?;
                signed.get_or_insert(right);
            }
            _ => unknown.push(id),
        }
    }
    signed.ok_or(SignatureFault::UnknownSigner { signers: unknown })
}

/// The signers of a detached signature.
fn parse(signature: &[u8]) -> Result<Vec<SignerInfo>, SignatureFault> {
    let malformed = |why: &str| SignatureFault::Malformed { why: why.to_owned() };
    if signature.len() > MOST_BYTES {
        return Err(malformed("it has more than 16 KiB"));
    }
    if signature.starts_with(b"-----BEGIN") {
        return Err(malformed("it is PEM, and DER is expected"));
    }
    let invalid = |error: der::Error| SignatureFault::Malformed { why: format!("it is not CMS: {error}") };
    let message = ContentInfo::from_der(signature).map_err(invalid)?;
    if message.content_type != SIGNED_DATA {
        return Err(malformed("it is CMS, but no signature"));
    }
    let data: SignedData = message.content.decode_as().map_err(invalid)?;
    if data.encap_content_info.econtent.is_some() {
        return Err(malformed("it contains what it signs, and is not for the object; leave out -nodetach"));
    }
    if data.encap_content_info.econtent_type != DATA {
        return Err(malformed("it signs something else than plain data"));
    }
    let infos = data.signer_infos.0.into_vec();
    match infos.len() {
        0 => Err(malformed("nobody has signed it")),
        1..=MOST_SIGNERS => Ok(infos),
        _ => Err(malformed("it has more than 16 signers")),
    }
}

/// Checks one signature by the trusted certificate of its signer.
fn check(
    info: &SignerInfo,
    certificate: &Certificate,
    content: &[u8],
    now: SystemTime,
) -> Result<Signed, SignatureFault> {
    let signer = certificate.tbs_certificate.subject.to_string();
    let wrong = |why| SignatureFault::Wrong { signer: signer.clone(), why };
    let not_accepted = |why| SignatureFault::NotAccepted { signer: signer.clone(), why };
    is_valid(certificate, now).map_err(|(from, to, now)| SignatureFault::Expired {
        signer: signer.clone(),
        from,
        to,
        now,
    })?;
    match certificate.tbs_certificate.get::<KeyUsage>() {
        Ok(None) => {}
        Ok(Some((_, usage))) if usage.digital_signature() => {}
        _ => return Err(not_accepted("its certificate is not for signatures (digitalSignature)".into())),
    }
    let digest = digest(info).map_err(not_accepted)?;
    let encoded;
    let bytes = match &info.signed_attrs {
        Some(attributes) => {
            let found = ring::digest::digest(digest, content);
            if value(attributes, CONTENT_TYPE).as_deref() != Some(&DATA.to_der().unwrap_or_default()) {
                return Err(wrong("its attributes do not say that it is for plain data"));
            }
            let expected =
                value(attributes, MESSAGE_DIGEST).ok_or(wrong("it has not one digest of the content"))?;
            let expected = OctetStringRef::from_der(&expected).map_err(|_| wrong("its digest is none"))?;
            if expected.as_bytes() != found.as_ref() {
                return Err(wrong("the object differs from the one that was signed"));
            }
            encoded = attributes.to_der().map_err(|_| wrong("its attributes cannot be encoded"))?;
            &encoded[..]
        }
        None if content.first() == Some(&SET) => {
            return Err(not_accepted(
                "content that begins like encoded attributes must be signed with attributes".into(),
            ));
        }
        None => content,
    };
    match is_right(info, &certificate.tbs_certificate.subject_public_key_info, bytes).map_err(not_accepted)? {
        true => Ok(Signed { signer }),
        false if info.signed_attrs.is_some() => Err(wrong("its key has not signed these attributes")),
        false => Err(wrong("its key has not signed this object")),
    }
}

/// The encoded value of an attribute, if there is exactly one.
fn value(attributes: &Attributes, of: ObjectIdentifier) -> Option<Vec<u8>> {
    let mut found = attributes.iter().filter(|attribute| attribute.oid == of);
    let (attribute, None) = (found.next()?, found.next()) else { return None };
    match attribute.values.as_slice() {
        [one] => one.to_der().ok(),
        _ => None,
    }
}
