//! Whatever the bytes of a signature are, they are no right one of a content that nobody signed.

use skep::signature::{Certificates, Keys, SignerId, verify};

const CERTIFICATES: [&[u8]; 3] = [
    include_bytes!("../signatures/rsa.cert"),
    include_bytes!("../signatures/p384.cert"),
    include_bytes!("../signatures/ed25519.cert"),
];

/// Trusts everybody whose certificate it has, whatever number the message names.
struct Eager(Certificates);

impl Keys for Eager {
    fn trusted(&self, signer: &SignerId) -> Option<Vec<u8>> {
        self.0.trusted(signer).or_else(|| Some(CERTIFICATES[0].to_vec()))
    }
}

/// Takes the bytes as a signature, and as certificates.
pub(crate) fn check(data: &[u8]) {
    let mut trusted = Certificates::new();
    for certificate in CERTIFICATES {
        trusted.add(certificate).expect("a certificate");
    }
    let verdict = verify(b"a content that nobody signed", data, &Eager(trusted.clone()));
    let fault = verdict.expect_err("nobody signed it");
    // A message is made of whatever the bytes say.
    assert!(fault.to_string().len() < 20_000);
    let _ = trusted.add(data);
}
