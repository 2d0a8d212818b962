//! Signed objects: what OpenSSL signs is loaded, and nothing else, whatever an attacker makes of objects and
//! signatures.
//!
//! `tests/signatures/make` made the files.

#[path = "../oracle/signatures.rs"]
mod oracle;

use cms::content_info::ContentInfo;
use cms::signed_data::SignedData;
use der::asn1::{Any, ObjectIdentifier, OctetString};
use der::{Decode, Encode};
use skep::signature::{Certificates, Keys, SignatureFault, SignerId, verify};
use skep::{Error, Object, Runtime};
use skep_testkit::{fewer_if_emulated, is_emulated};
use std::time::{Duration, SystemTime};

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/signatures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn trusting(names: &[&str]) -> Certificates {
    let mut trusted = Certificates::new();
    for name in names {
        assert_eq!(trusted.add(&file(&format!("{name}.cert"))).unwrap(), 1);
    }
    trusted
}

/// What comes of a signature of the content.
fn checked(signature: &[u8], trusted: &[&str]) -> Result<String, SignatureFault> {
    verify(&file("content"), signature, &trusting(trusted)).map(|signed| signed.signer)
}

#[track_caller]
fn right(name: &str, by: &str) {
    let signer = checked(&file(name), &[by]).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    assert!(signer.contains(&format!("CN={by}")), "{signer}");
}

#[track_caller]
fn not_accepted(name: &str, by: &str, word: &str) {
    match checked(&file(name), &[by]) {
        Err(SignatureFault::NotAccepted { why, .. }) => assert!(why.contains(word), "{why}"),
        other => panic!("{name}: {other:?}"),
    }
}

/// A message with a change in what it says.
fn changed(name: &str, change: impl FnOnce(&mut SignedData)) -> Vec<u8> {
    let message = ContentInfo::from_der(&file(name)).unwrap();
    let mut data: SignedData = message.content.decode_as().unwrap();
    change(&mut data);
    let content = Any::encode_from(&data).unwrap();
    ContentInfo { content, ..message }.to_der().unwrap()
}

/// The same for its only signer.
fn resigned(name: &str, change: impl FnOnce(&mut cms::signed_data::SignerInfo)) -> Vec<u8> {
    changed(name, |data| {
        let mut infos = data.signer_infos.0.clone().into_vec();
        change(&mut infos[0]);
        data.signer_infos = infos.try_into().unwrap();
    })
}

#[test]
fn what_openssl_signs_with_accepted_algorithms_is_right() {
    for rsa in
        ["rsa-sha256", "rsa-sha384", "rsa-sha512", "rsa-pss-sha256", "rsa-pss-sha512", "rsa-as-bpftool"]
    {
        right(rsa, "rsa");
    }
    for p256 in ["p256-sha256", "p256-sha384", "p256-no-attributes"] {
        right(p256, "p256");
    }
    right("p384-sha384", "p384");
    right("two-signers", "rsa");
    right("two-signers", "p256");
}

/// Of a message without attributes, by OpenSSL's signature with an Ed25519 key.
fn by_ed25519() -> Vec<u8> {
    let certificate = x509(&file("ed25519.cert"));
    resigned("rsa-as-bpftool", |info| {
        let of = cms::cert::IssuerAndSerialNumber {
            issuer: certificate.tbs_certificate.issuer.clone(),
            serial_number: certificate.tbs_certificate.serial_number.clone(),
        };
        info.sid = cms::signed_data::SignerIdentifier::IssuerAndSerialNumber(of);
        info.digest_alg.oid = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");
        info.signature_algorithm.oid = ObjectIdentifier::new_unwrap("1.3.101.112");
        info.signature_algorithm.parameters = None;
        info.signature = OctetString::new(file("ed25519.raw")).unwrap();
    })
}

fn x509(bytes: &[u8]) -> cms::cert::x509::Certificate {
    cms::cert::x509::Certificate::from_der(bytes).unwrap()
}

#[test]
fn ed25519_is_accepted_with_its_own_digest_alone() {
    assert!(checked(&by_ed25519(), &["ed25519"]).unwrap().contains("CN=ed25519"));
    let message = ContentInfo::from_der(&by_ed25519()).unwrap();
    let mut data: SignedData = message.content.decode_as().unwrap();
    let mut infos = data.signer_infos.0.clone().into_vec();
    infos[0].digest_alg.oid = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
    data.signer_infos = infos.try_into().unwrap();
    let other = ContentInfo { content: Any::encode_from(&data).unwrap(), ..message }.to_der().unwrap();
    assert!(matches!(checked(&other, &["ed25519"]), Err(SignatureFault::NotAccepted { .. })));
}

#[test]
fn weak_and_unusual_algorithms_are_not_accepted() {
    not_accepted("rsa-sha1", "rsa", "1.3.14.3.2.26");
    not_accepted("rsa-pss-long-salt", "rsa", "salt");
    not_accepted("agreement", "agreement", "digitalSignature");
    // A key of 1024 bits.
    assert!(matches!(checked(&file("rsa-short-key"), &["rsa-short"]), Err(SignatureFault::Wrong { .. })));
}

#[test]
fn only_trusted_signers_count() {
    let unknown = |signature: &str, trusted: &[&str]| match checked(&file(signature), trusted) {
        Err(SignatureFault::UnknownSigner { signers }) => signers,
        other => panic!("{signature}: {other:?}"),
    };
    assert_eq!(unknown("rsa-sha256", &[]).len(), 1);
    let signers = unknown("two-signers", &["rsa-other", "p384"]);
    assert!(signers.iter().all(|signer| signer.to_string().contains("O=skep tests")), "{signers:?}");
    assert!(
        matches!(&unknown("rsa-as-bpftool", &["rsa-other"])[..], [SignerId::Key { id }] if id.len() == 20)
    );
    // The certificate in the message is the signer's, and means nothing.
    unknown("rsa-sha256", &["p256"]);
}

#[test]
fn a_store_that_answers_with_another_certificate_is_not_believed() {
    struct Any(Vec<u8>);
    impl Keys for Any {
        fn trusted(&self, _: &SignerId) -> Option<Vec<u8>> {
            Some(self.0.clone())
        }
    }
    for answer in [file("rsa-other.cert"), file("p384.cert"), b"no certificate".to_vec()] {
        for signature in ["rsa-sha256", "rsa-as-bpftool"] {
            let checked = verify(&file("content"), &file(signature), &Any(answer.clone()));
            assert!(matches!(checked, Err(SignatureFault::UnknownSigner { .. })), "{checked:?}");
        }
    }
}

#[test]
fn another_key_with_the_name_of_a_trusted_signer_is_refused() {
    // The attacker's message names the trusted signer; the signature is another key's.
    let attacker = ContentInfo::from_der(&file("rsa-sha256")).unwrap();
    let data: SignedData = attacker.content.decode_as().unwrap();
    let victim = x509(&file("rsa-other.cert"));
    let named = cms::cert::IssuerAndSerialNumber {
        issuer: victim.tbs_certificate.issuer.clone(),
        serial_number: victim.tbs_certificate.serial_number.clone(),
    };
    let forged = resigned("rsa-sha256", |info| {
        info.sid = cms::signed_data::SignerIdentifier::IssuerAndSerialNumber(named);
    });
    assert_eq!(data.signer_infos.0.len(), 1);
    assert!(matches!(checked(&forged, &["rsa-other"]), Err(SignatureFault::Wrong { .. })));
}

#[test]
fn a_wrong_signature_of_one_trusted_signer_spoils_the_right_one_of_another() {
    let spoilt = changed("two-signers", |data| {
        let mut infos = data.signer_infos.0.clone().into_vec();
        let mut bytes = infos[0].signature.as_bytes().to_vec();
        bytes[40] ^= 1;
        infos[0].signature = OctetString::new(bytes).unwrap();
        data.signer_infos = infos.try_into().unwrap();
    });
    assert!(matches!(checked(&spoilt, &["rsa", "p256"]), Err(SignatureFault::Wrong { .. })));
    // To a host that trusts only the other one, it is a signature of a stranger.
    let alone = [checked(&spoilt, &["rsa"]), checked(&spoilt, &["p256"])];
    assert_eq!(alone.iter().filter(|alone| alone.is_ok()).count(), 1, "{alone:?}");
}

#[test]
fn a_change_of_any_byte_of_the_object_is_found() {
    let content = file("content");
    for (name, by) in [("rsa-sha256", "rsa"), ("rsa-as-bpftool", "rsa"), ("p256-sha256", "p256")] {
        let (signature, trusted) = (file(name), trusting(&[by]));
        for at in (0..content.len()).step_by(97) {
            let mut other = content.clone();
            other[at] ^= 0x10;
            let checked = verify(&other, &signature, &trusted);
            assert!(matches!(checked, Err(SignatureFault::Wrong { .. })), "{name}, byte {at}: {checked:?}");
        }
        for other in [&content[1..], &content[..content.len() - 1], &[&content[..], &[0]].concat(), &[]] {
            assert!(
                matches!(verify(other, &signature, &trusted), Err(SignatureFault::Wrong { .. })),
                "{name}"
            );
        }
    }
    let of_other = checked(&file("of-other-content"), &["rsa"]);
    let Err(SignatureFault::Wrong { why, .. }) = of_other else { panic!("{of_other:?}") };
    assert_eq!(why, "the object differs from the one that was signed");
}

#[test]
fn no_changed_byte_of_a_signature_makes_another_right_one_of_another_signer() {
    let trusted = trusting(&["rsa", "p256", "p384", "ed25519"]);
    for name in ["rsa-sha256", "rsa-pss-sha256", "p256-no-attributes", "two-signers"] {
        let signature = file(name);
        let signers = |bytes: &[u8]| verify(&file("content"), bytes, &trusted).map(|signed| signed.signer);
        let honest = signers(&signature).unwrap();
        let mut refused = 0;
        for at in (0..signature.len()).step_by(if is_emulated() { 41 } else { 1 }) {
            let mut other = signature.clone();
            other[at] ^= 1 << (at % 8);
            // Certificates in the message, and what is not signed, may be anything: the signer is still the honest one.
            match signers(&other) {
                Ok(signer) => assert!(signer == honest || name == "two-signers", "{name}, byte {at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > if is_emulated() { 3 } else { 100 }, "{name}: {refused}");
        for len in (0..signature.len()).step_by(if is_emulated() { 41 } else { 1 }) {
            assert!(signers(&signature[..len]).is_err(), "{name}, {len} bytes");
        }
        let longer = [&signature[..], &[0]].concat();
        assert!(matches!(signers(&longer), Err(SignatureFault::Malformed { .. })));
    }
}

#[test]
fn attributes_cannot_be_left_out_put_in_or_passed_off_as_content() {
    let without = resigned("rsa-sha256", |info| info.signed_attrs = None);
    assert!(matches!(checked(&without, &["rsa"]), Err(SignatureFault::Wrong { .. })));
    let attributes = {
        let data: SignedData =
            ContentInfo::from_der(&file("rsa-sha256")).unwrap().content.decode_as().unwrap();
        data.signer_infos.0.into_vec()[0].signed_attrs.clone().unwrap()
    };
    let with = resigned("rsa-as-bpftool", |info| info.signed_attrs = Some(attributes.clone()));
    assert!(matches!(checked(&with, &["rsa"]), Err(SignatureFault::Wrong { .. })));
    // The signature is right for these bytes, which are not what anybody meant to sign.
    let content = attributes.to_der().unwrap();
    let passed_off = verify(&content, &without, &trusting(&["rsa"]));
    assert!(matches!(passed_off, Err(SignatureFault::NotAccepted { .. })), "{passed_off:?}");
    // Without the digest, or with two, any content would do.
    for change in [0, 1] {
        let other = resigned("rsa-sha256", |info| {
            let digest = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");
            let mut list = info.signed_attrs.clone().unwrap().into_vec();
            match change {
                0 => list.retain(|attribute| attribute.oid != digest),
                _ => {
                    let found = list.iter_mut().find(|attribute| attribute.oid == digest).unwrap();
                    found.values.insert(Any::new(der::Tag::OctetString, vec![0; 32]).unwrap()).unwrap();
                }
            }
            info.signed_attrs = Some(list.try_into().unwrap());
        });
        assert!(matches!(checked(&other, &["rsa"]), Err(SignatureFault::Wrong { .. })));
    }
}

#[test]
fn messages_that_are_no_detached_signature_are_refused_with_the_reason() {
    let malformed = |bytes: &[u8], word: &str| match checked(bytes, &["rsa"]) {
        Err(SignatureFault::Malformed { why }) => assert!(why.contains(word), "{why}"),
        other => panic!("{other:?}"),
    };
    malformed(b"", "not CMS");
    malformed(&file("content"), "not CMS");
    malformed(&file("rsa.cert"), "not CMS");
    malformed(b"-----BEGIN CMS-----\n", "DER is expected");
    malformed(&file("with-content"), "-nodetach");
    malformed(&vec![0x30; (16 << 10) + 1], "16 KiB");
    malformed(&changed("rsa-sha256", |data| data.signer_infos = vec![].try_into().unwrap()), "nobody");
    let other = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.3");
    malformed(&changed("rsa-sha256", |data| data.encap_content_info.econtent_type = other), "plain data");
    let mut message = ContentInfo::from_der(&file("rsa-sha256")).unwrap();
    message.content_type = other;
    malformed(&message.to_der().unwrap(), "no signature");
}

#[test]
fn certificates_count_while_they_are_valid() {
    struct At(Certificates, SystemTime);
    impl Keys for At {
        fn trusted(&self, signer: &SignerId) -> Option<Vec<u8>> {
            self.0.trusted(signer)
        }
        fn now(&self) -> SystemTime {
            self.1
        }
    }
    let at = |years: u64| {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(years * 366 * 24 * 3600);
        verify(&file("content"), &file("rsa-sha256"), &At(trusting(&["rsa"]), now))
    };
    assert!(at(70).is_ok());
    for expired in [0, 20, 170, 5000] {
        let Err(SignatureFault::Expired { signer, now, .. }) = at(expired) else { panic!("year {expired}") };
        assert!(signer.contains("CN=rsa") && !now.is_empty());
    }
}

#[test]
fn a_renewed_certificate_of_a_key_counts_beside_the_expired_one() {
    let mut expired = x509(&file("rsa.cert"));
    expired.tbs_certificate.validity.not_after = expired.tbs_certificate.validity.not_before;
    let expired = expired.to_der().unwrap();
    let trusting = |certificates: &[&[u8]]| {
        let mut trusted = Certificates::new();
        for certificate in certificates {
            trusted.add(certificate).unwrap();
        }
        verify(&file("content"), &file("rsa-as-bpftool"), &trusted)
    };
    let renewed = file("rsa.cert");
    for both in [[&expired[..], &renewed[..]], [&renewed[..], &expired[..]]] {
        trusting(&both).unwrap();
    }
    assert!(matches!(trusting(&[&expired]), Err(SignatureFault::Expired { .. })));
}

#[test]
fn certificates_come_in_der_and_pem_and_nothing_else_is_taken() {
    let mut trusted = Certificates::new();
    let pem = String::from_utf8(file("p256.cert")).unwrap();
    assert_eq!(trusted.add(format!("{pem}a comment\n{pem}").as_bytes()).unwrap(), 2);
    for wrong in
        [&b""[..], b"text", b"-----BEGIN PRIVATE KEY-----\n", &pem.as_bytes()[..300], &file("rsa-sha256")]
    {
        assert!(matches!(trusted.add(wrong), Err(Error::Certificate { .. })));
    }
}

#[test]
fn a_runtime_that_requires_signatures_loads_nothing_else() {
    let runtime = Runtime::builder().require_signatures(trusting(&["rsa"])).build().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signatures");
    let object = Object::open(format!("{folder}/content")).unwrap();
    let refused = |object: &Object| match runtime.load(object) {
        Err(error @ Error::Signature { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let text = refused(&object);
    assert!(text.contains("tests/signatures/content") && text.contains("is not signed"), "{text}");
    let text = refused(&object.clone().with_signature(&file("p256-sha256")));
    assert!(text.contains("CN=p256") && text.contains("not trusted"), "{text}");
    runtime.load(&object.clone().with_signature(&file("rsa-sha256"))).unwrap();
    // Each object has its own signature.
    let other =
        Object::parse(&std::fs::read(format!("{folder}/../../../../examples/firewall.bpf.o")).unwrap());
    refused(&other.unwrap().with_signature(&file("rsa-sha256")));
    let insns = skep::isa::assemble("r0 = 2\nexit").unwrap();
    let xdp = skep::abi::ProgramType::from_name("xdp").unwrap();
    let made = Object::from_insns("made", xdp, insns).with_signature(&file("rsa-sha256"));
    assert!(refused(&made).contains("not made from bytes"));
    // Others load as they always did.
    Runtime::new().unwrap().load(&object).unwrap();
}

#[test]
fn bare_instructions_are_signed_as_linux_has_it() {
    let runtime = Runtime::builder().require_signatures(trusting(&["rsa"])).build().unwrap();
    let xdp = skep::abi::ProgramType::from_name("xdp").unwrap();
    let load = |bytes: &[u8]| {
        let object = Object::from_bytecode("two", xdp, bytes).unwrap();
        runtime.load(&object.with_signature(&file("instructions-as-bpftool")))
    };
    let module = load(&file("instructions")).unwrap();
    assert_eq!(module.programs()[0].run(&mut skep::Packet::new(&[0; 64])).unwrap(), 2);
    let mut other = file("instructions");
    other[4] = 3;
    let Err(Error::Signature { fault, .. }) = load(&other) else { panic!("another program") };
    assert!(matches!(*fault, SignatureFault::Wrong { .. }), "{fault}");
}

/// What `cargo xtask fuzz signatures` does for longer.
#[test]
fn bytes_that_nobody_signed_are_refused_whatever_they_are() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    for name in ["rsa-sha256", "rsa-as-bpftool", "p384-sha384", "two-signers", "rsa.cert", "p256.cert"] {
        let original = file(name);
        oracle::check(&original);
        for _ in 0..fewer_if_emulated(300) {
            let mut bytes = original.clone();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes[at] = next(256) as u8,
                    1 => bytes[at] ^= 1 << next(8),
                    2 => drop(bytes.splice(at..at, original[..next(40)].iter().copied())),
                    _ => drop(bytes.drain(at..(at + next(8)).min(bytes.len() - 1).max(at))),
                }
            }
            oracle::check(&bytes);
        }
    }
}
