//! Who is trusted: a trait for hosts with a store of their own, and a list of certificates.

use crate::error::{Error, SignerId};
use cms::signed_data::SignerIdentifier;
use der::{DateTime, Decode, DecodePem};
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::ext::pkix::SubjectKeyIdentifier;

/// Who is trusted to sign. Called in each load; may look into a store that changes.
pub trait Keys: Send + Sync {
    /// The certificate of this signer (X.509, DER), if what it signs may be loaded. Certificates that were revoked
    /// are not returned. The load checks that it is the signer's.
    fn trusted(&self, signer: &SignerId) -> Option<Vec<u8>>;

    /// The time at which certificates must be valid.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Trusted certificates in a list. Of several that are the signer's, the first that is valid now counts.
#[derive(Clone, Debug, Default)]
pub struct Certificates(Vec<(Certificate, Vec<u8>)>);

impl Certificates {
    /// An empty list: nobody is trusted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the certificates of a file: one in DER, or any number in PEM. Returns how many these are.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`], and nothing is added.
    pub fn add(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let failed = |why: String| Error::Certificate { why };
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.contains("-----BEGIN"));
        let added = match text {
            Some(text) => blocks(text)
                .map(|block| Certificate::from_pem(block).map_err(|error| failed(error.to_string())))
                .collect::<Result<Vec<_>, _>>()?,
            None => vec![Certificate::from_der(bytes).map_err(|error| failed(error.to_string()))?],
        };
        if added.is_empty() {
            return Err(failed("it has no block CERTIFICATE".into()));
        }
        let encoded = added.into_iter().map(|certificate| {
            let bytes = der::Encode::to_der(&certificate).map_err(|error| failed(error.to_string()))?;
            Ok((certificate, bytes))
        });
        let encoded: Vec<_> = encoded.collect::<Result<_, Error>>()?;
        let count = encoded.len();
        self.0.extend(encoded);
        Ok(count)
    }
}

impl Keys for Certificates {
    fn trusted(&self, signer: &SignerId) -> Option<Vec<u8>> {
        let is_it = |certificate: &Certificate| match signer {
            SignerId::Certificate { issuer, serial } => {
                let known = &certificate.tbs_certificate;
                known.issuer.to_string() == *issuer && known.serial_number.as_bytes() == serial
            }
            SignerId::Key { id } => key_id(certificate).as_deref() == Some(id),
        };
        // Of an expired certificate and a renewed one of the same key, the one that counts is wanted.
        let now = self.now();
        let mut found = self.0.iter().filter(|(certificate, _)| is_it(certificate));
        let valid = found.clone().find(|(certificate, _)| is_valid(certificate, now).is_ok());
        valid.or_else(|| found.next()).map(|(_, bytes)| bytes.clone())
    }
}

/// The PEM blocks of certificates in a text. Other blocks, and what is between them, are passed over.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    text.match_indices(BEGIN).filter_map(move |(at, _)| {
        let end = text[at..].find(END)? + END.len();
        Some(&text[at..at + end])
    })
}

/// The number of a certificate's key.
fn key_id(certificate: &Certificate) -> Option<Vec<u8>> {
    let (_, id) = certificate.tbs_certificate.get::<SubjectKeyIdentifier>().ok()??;
    Some(id.0.as_bytes().to_vec())
}

/// What a message says about a signer.
pub(super) fn named(signer: &SignerIdentifier) -> SignerId {
    match signer {
        SignerIdentifier::IssuerAndSerialNumber(of) => SignerId::Certificate {
            issuer: of.issuer.to_string(),
            serial: of.serial_number.as_bytes().to_vec(),
        },
        SignerIdentifier::SubjectKeyIdentifier(id) => SignerId::Key { id: id.0.as_bytes().to_vec() },
    }
}

/// Whether the certificate is that of the signer: exactly, not as text.
pub(super) fn is_of(certificate: &Certificate, signer: &SignerIdentifier) -> bool {
    let known = &certificate.tbs_certificate;
    match signer {
        SignerIdentifier::IssuerAndSerialNumber(of) => {
            known.issuer == of.issuer && known.serial_number == of.serial_number
        }
        SignerIdentifier::SubjectKeyIdentifier(id) => key_id(certificate).as_deref() == Some(id.0.as_bytes()),
    }
}

/// Checks the time. The error has the certificate's first and last second, and now.
pub(super) fn is_valid(certificate: &Certificate, now: SystemTime) -> Result<(), (String, String, String)> {
    let validity = &certificate.tbs_certificate.validity;
    let (from, to) = (validity.not_before.to_date_time(), validity.not_after.to_date_time());
    match DateTime::from_system_time(now) {
        Ok(now) if from <= now && now <= to => Ok(()),
        Ok(now) => Err((from.to_string(), to.to_string(), now.to_string())),
        Err(_) => Err((from.to_string(), to.to_string(), "no date".into())),
    }
}
