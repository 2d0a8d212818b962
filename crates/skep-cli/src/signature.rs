//! `--signature` and `--trusted`: only an object that somebody signed who is trusted is used.

use crate::target;
use skep::signature::Certificates;
use skep::sys::SysEngine;
use skep::{Error, Object, RuntimeBuilder};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct SignatureArgs {
    /// The signature of the object: detached CMS in DER, as openssl cms -sign -binary -outform DER makes it.
    #[arg(long, value_name = "FILE", requires = "trusted")]
    signature: Option<PathBuf>,
    /// Use the object only if the owner of this certificate signed it: X.509 in PEM or DER; given again, other owners.
    #[arg(long, value_name = "CERT")]
    trusted: Vec<PathBuf>,
}

impl SignatureArgs {
    /// Whether a signature is required.
    pub(crate) fn is_required(&self) -> bool {
        !self.trusted.is_empty()
    }

    /// Gives the object its signature.
    pub(crate) fn sign(&self, object: Object) -> Result<Object, Error> {
        match &self.signature {
            Some(path) => Ok(object.with_signature(&target::read(path)?)),
            None => Ok(object),
        }
    }

    /// Lets the runtime load nothing but what is signed, if that is wanted.
    pub(crate) fn require(&self, builder: RuntimeBuilder) -> Result<RuntimeBuilder, Error> {
        if !self.is_required() {
            return Ok(builder);
        }
        Ok(builder.require_signatures(self.certificates()?))
    }

    /// Checks the object's signature, if that is wanted.
    pub(crate) fn check(&self, object: &Object) -> Result<(), Error> {
        if self.is_required() {
            object.verify_signature(&self.certificates()?)?;
        }
        Ok(())
    }

    fn certificates(&self) -> Result<Certificates, Error> {
        certificates(&self.trusted)
    }
}

/// `--trusted` and `--require-signatures` of `skep exec`, whose application has the signatures of its programs.
#[derive(clap::Args)]
pub(crate) struct TrustArgs {
    /// Check the signatures of programs that the application loads (signature of BPF_PROG_LOAD) by the key of this
    /// certificate: X.509 in PEM or DER; given again, others. Without any, programs with a signature are refused.
    #[arg(long, value_name = "CERT")]
    trusted: Vec<PathBuf>,
    /// Refuse programs without a signature.
    #[arg(long, requires = "trusted")]
    require_signatures: bool,
}

impl TrustArgs {
    /// Lets the runtime load nothing but what is signed, if that is wanted.
    pub(crate) fn require(&self, builder: RuntimeBuilder) -> Result<RuntimeBuilder, Error> {
        if !self.require_signatures {
            return Ok(builder);
        }
        Ok(builder.require_signatures(certificates(&self.trusted)?))
    }

    /// Gives the engine the keys.
    pub(crate) fn trust(&self, engine: SysEngine) -> Result<SysEngine, Error> {
        if self.trusted.is_empty() {
            return Ok(engine);
        }
        Ok(engine.trusted(certificates(&self.trusted)?))
    }
}

fn certificates(paths: &[PathBuf]) -> Result<Certificates, Error> {
    let mut trusted = Certificates::new();
    for path in paths {
        trusted.add(&target::read(path)?).map_err(|error| match error {
            Error::Certificate { why } => Error::Certificate { why: format!("{}: {why}", path.display()) },
            error => error,
        })?;
    }
    Ok(trusted)
}
